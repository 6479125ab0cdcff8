-- Five numbers of a run under nsys: whether copies of experts were hidden behind kernels, how fast
-- they were, and what the compute stream waited for. docs/profiling.md says how to read them.
--
--   nsys export -t sqlite run.nsys-rep
--   sqlite3 -readonly -cmd '.parameter set @tokens 256' run.sqlite < tools/overlap.sql
--
-- @tokens: tokens that the capture ran; without it bytes are told by layer alone. Nothing is written
-- to the database: what is made is temporary. Tables of an export are made when there is something
-- to put into them: "no such table" means that nothing of that kind was recorded.
--
-- Of the export's schema: times are nanoseconds; copyKind 1 is host to device; srcKind 0 is pageable
-- memory; eventType 59 is a range pushed and popped by one thread; a text is in `text` or, by its
-- number, in StringIds; a call of the runtime and the kernel it launched have one correlationId in
-- one process, which is what is left of globalTid and globalPid without the lowest 24 bits.
.headers on
.mode column

CREATE TEMP TABLE htod AS
SELECT deviceId, start, "end", bytes, srcKind FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind = 1;

-- 1. Overlap: time with a copy to the device under way, and how much of it some kernel ran.
.print "\n1. copies to the device beside kernels"
WITH edges AS (
    SELECT deviceId, start AS t, 1 AS c, 0 AS k FROM htod
    UNION ALL SELECT deviceId, "end", -1, 0 FROM htod
    UNION ALL SELECT deviceId, start, 0, 1 FROM CUPTI_ACTIVITY_KIND_KERNEL
    UNION ALL SELECT deviceId, "end", 0, -1 FROM CUPTI_ACTIVITY_KIND_KERNEL
), spans AS (
    SELECT deviceId, LEAD(t) OVER w - t AS ns, SUM(c) OVER w AS copies, SUM(k) OVER w AS kernels
    FROM edges
    WINDOW w AS (PARTITION BY deviceId ORDER BY t, c DESC, k DESC ROWS UNBOUNDED PRECEDING)
)
SELECT deviceId AS device,
       ROUND(SUM(CASE WHEN copies > 0 THEN ns ELSE 0 END) / 1e6, 3) AS copy_ms,
       ROUND(SUM(CASE WHEN kernels > 0 THEN ns ELSE 0 END) / 1e6, 3) AS kernel_ms,
       ROUND(SUM(CASE WHEN copies > 0 AND kernels > 0 THEN ns ELSE 0 END) / 1e6, 3) AS both_ms,
       ROUND(100.0 * SUM(CASE WHEN copies > 0 AND kernels > 0 THEN ns ELSE 0 END)
             / SUM(CASE WHEN copies > 0 THEN ns ELSE 0 END), 1) AS overlap_percent
FROM spans
GROUP BY deviceId
HAVING SUM(CASE WHEN copies > 0 THEN ns ELSE 0 END) > 0
ORDER BY deviceId;

-- 2. How fast copies were: bytes a nanosecond are GB/s. Small ones are slow by nature.
.print "\n2. speed of copies to the device"
SELECT CASE WHEN bytes >= 4194304 THEN 'from 4 MiB' WHEN bytes >= 262144 THEN '256 KiB to 4 MiB'
            ELSE 'below 256 KiB' END AS size,
       CAST(bytes * 1.0 / ("end" - start) / 5 AS INTEGER) * 5 AS from_gb_s,
       COUNT(*) AS copies,
       SUM(bytes) AS bytes,
       ROUND(100.0 * SUM(bytes) / (SELECT SUM(bytes) FROM htod), 1) AS percent_of_bytes
FROM htod
WHERE "end" > start
GROUP BY size, from_gb_s
ORDER BY MIN(bytes >= 262144) + MIN(bytes >= 4194304) DESC, from_gb_s;

-- 3. Bytes that came from pageable memory: they are copied twice, and overlap with nothing. Not 0 is
-- a fault: run with --pin require, and see what the tool says of limits.
.print "\n3. copies to the device from pageable memory"
SELECT COALESCE(SUM(CASE WHEN srcKind = 0 THEN bytes END), 0) AS pageable_bytes,
       SUM(bytes) AS bytes,
       ROUND(100.0 * COALESCE(SUM(CASE WHEN srcKind = 0 THEN bytes END), 0) / SUM(bytes), 2)
           AS pageable_percent
FROM htod;

-- 4. Gaps on the streams that compute: within each range moe.layer, from the first kernel that it
-- launched to the end of the last, the time in which none of its kernels ran on that stream.
.print "\n4. gaps between kernels within moe.layer"
CREATE TEMP TABLE layers AS
SELECT ROW_NUMBER() OVER (ORDER BY e.globalTid, e.start) AS layer, e.globalTid, e.start, e."end"
FROM NVTX_EVENTS AS e LEFT JOIN StringIds AS s ON s.id = e.textId
WHERE e.eventType = 59 AND COALESCE(e.text, s.value) = 'moe.layer' AND e."end" IS NOT NULL;
CREATE INDEX temp.layers_by_start ON layers (globalTid, start);
CREATE TEMP TABLE launches AS
SELECT r.correlationId, r.globalTid / 16777216 AS process,
       (SELECT l.layer FROM layers AS l
        WHERE l.globalTid = r.globalTid AND l.start <= r.start
        ORDER BY l.start DESC LIMIT 1) AS layer, r.start
FROM CUPTI_ACTIVITY_KIND_RUNTIME AS r;
CREATE INDEX temp.launches_by_id ON launches (correlationId, process);
WITH kernels AS (
    SELECT l.layer, k.deviceId, k.streamId, k.start, k."end",
           MAX(k."end") OVER (PARTITION BY l.layer, k.deviceId, k.streamId ORDER BY k.start, k."end"
                              ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM CUPTI_ACTIVITY_KIND_KERNEL AS k
    JOIN launches AS c ON c.correlationId = k.correlationId AND c.process = k.globalPid / 16777216
    JOIN layers AS l ON l.layer = c.layer AND c.start <= l."end"
), by_layer AS (
    SELECT layer, deviceId, streamId, COUNT(*) AS n, MAX("end") - MIN(start) AS span,
           SUM(MAX(0, start - COALESCE(before, start))) AS gaps,
           MAX(MAX(0, start - COALESCE(before, start))) AS longest
    FROM (SELECT layer, deviceId, streamId, start, "end", before FROM kernels)
    GROUP BY layer, deviceId, streamId
)
SELECT deviceId AS device, streamId AS stream, COUNT(*) AS layers, SUM(n) AS kernels,
       ROUND(SUM(span) / 1e6, 3) AS span_ms, ROUND(SUM(gaps) / 1e6, 3) AS gap_ms,
       ROUND(100.0 * SUM(gaps) / SUM(span), 1) AS gap_percent,
       ROUND(MAX(longest) / 1e3, 1) AS longest_us
FROM by_layer
GROUP BY deviceId, streamId
ORDER BY SUM(span) DESC;

-- 5. Bytes copied to the device for a layer and for a token.
.print "\n5. bytes to the device"
SELECT (SELECT COUNT(*) FROM htod) AS copies,
       (SELECT SUM(bytes) FROM htod) AS bytes,
       (SELECT COUNT(*) FROM layers) AS layers,
       ROUND((SELECT SUM(bytes) FROM htod) * 1.0 / (SELECT COUNT(*) FROM layers), 1)
           AS bytes_a_layer,
       ROUND((SELECT SUM(bytes) FROM htod) * 1.0 / @tokens, 1) AS bytes_a_token;
