/* verify.h: everything about one LYRW file that can be checked without running it.
 *
 * Parsing refuses what cannot be read; this tells what should not be there although it can. A
 * defect is something no right writer makes; a note is worth saying and legal: tags this code does
 * not know, legacy files, combinations that nothing can run. Nothing is repaired.
 *
 *   DEFECT                 WHAT
 *   ReservedNotZero        the header's reserved word
 *   ReservedBankFlags      bits 2 to 15 of a bank's flags
 *   UnknownBrowseMode      browse value 3
 *   DuplicateBankId        a later bank with the id of an earlier one: no lookup finds it
 *   NotWholeBlocks         columns of a schema that are no whole blocks of its format
 *   SizeOverflow           a shape whose bytes 64 bits cannot count
 *   MissingPartner         a schema with a pair id and no partner
 *   AmbiguousPartner       ... and several
 *   PairShapeDiffers       partners of different rows or cols
 *   PairFormatDiffers      partners of different formats
 *   SegmentsOverlap        an entry in two segment records of a bank
 *   SegmentsGapped         entries between two records, or missing though the file is not marked
 *                          as one of several
 *   RepeatedSegmentIndex   two records of a bank with one segment_index
 *   EntryTableTruncated    slots the file does not hold
 *   RegionOutOfBounds      a region that ends behind the file
 *   OffsetNotAligned       an offset that is no multiple of 64
 *   RegionInTables         a region that begins before the tables end
 *   RegionsOverlap         two regions that share bytes, identical ones included
 *   LengthNotShape         a length that is not what shape and format say
 *   TrailingBytes          bytes behind the last region
 *   TooManySlots           more slots than are looked at: nothing is said of the rest
 *   NonFiniteValue, NonFiniteScale   (scan) NaN or infinity, with the first place and the count
 *
 *   NOTE: UnknownHeaderFlags, UnknownBankKind, UnknownRole, UnknownFormat, UnknownPacking,
 *   UnknownLayout, UndeclaredFusedLayout, EmptyShape, RepeatedRole, StreamsStoredApart,
 *   NoTensorScale, NoScaleStream, BrowseNotHonoured, EmptySegment, BankWithoutSegment,
 *   MultiSegmentFlagOnWholeFile, PaddingMissing, ScanStopped
 *
 * Every text names what it can of segment (ordinal), bank (id), entry, schema, role and byte. Time
 * is near-linear in the records and slots the file really holds; memory is at most 24 bytes for
 * each such slot, as much again while they are sorted, and only when regions do not lie in
 * ascending order.
 */
#ifndef PLEC_LYRW_VERIFY_H
#define PLEC_LYRW_VERIFY_H

#include "lyrw/findings.h"
#include "lyrw/segment.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Most slots of one file that are looked at. No real file comes near; one made of holes would keep
 * the verifier busy for hours. */
enum { PLEC_VERIFY_SLOTS_MAX = 1 << 24 };

/* Counters are added to, so that one report can gather several files. */
struct plec_verify_report {
    uint64_t n_records; /* banks, segment records and schemas looked at */
    uint64_t n_regions; /* slots read: a file with 0 holds nothing that was checked */
    uint64_t n_scanned, scanned_bytes; /* regions whose values were looked at */
};

struct plec_verify_options {
    const char *where; /* put in front of every text: path or storage key; NULL: nothing */
    /* Called by the scan after each region with its bytes; NULL: not called. */
    void (*progress)(void *user, uint64_t n_bytes);
    void *user;
};

/* Checks records, slots and how regions lie. options NULL: defaults. PLEC_OK whatever is found;
 * PLEC_NO_MEMORY when the overlap check cannot be made. */
PLEC_MUST_USE enum plec_status plec_segment_verify(struct plec_findings *findings,
                                                   struct plec_verify_report *report,
                                                   const struct plec_segment *segment,
                                                   const struct plec_verify_options *options,
                                                   struct plec_error *err);

/* Reads every region whose format has one meaning in it and looks for values and scales that are
 * not finite: f32, f16, bf16 and f64 elements; f16 scales of blocks; E8M0 255; E4M3 NaN. Regions
 * that are out of bounds or not of their shape's length are left to plec_segment_verify. Reads at
 * most as many bytes as the file has, then notes ScanStopped: only files whose regions overlap have
 * more. Stops at PLEC_VERIFY_SLOTS_MAX without a word: plec_segment_verify has it. */
void plec_segment_scan(struct plec_findings *findings, struct plec_verify_report *report,
                       const struct plec_segment *segment,
                       const struct plec_verify_options *options);

#ifdef __cplusplus
}
#endif
#endif
