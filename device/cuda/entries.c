/* entries.c: the device tables that kernels read expert pointers from.
 *
 * One memory for all tables, made at open, with a shadow on the host. Before a launch the bank's
 * entries are compared with the shadow, and rows that differ are written by a kernel on the
 * launch's stream, each with its next generation. What another stream still does with the table is
 * waited for. A captured graph reads the table of its bank; between replays the rows are brought up
 * to date with plec_graph_refresh.
 */
#include <string.h>

#include "device/cuda/cuda.h"

static float factor(const float *scales, uint32_t expert) {
    return scales != NULL ? scales[expert] : 1.0f;
}

static void make_row(struct plec_cuda_entry *row, const struct plec_bank *bank, uint32_t expert) {
    memset(row, 0, sizeof *row);
    memcpy(row->values, bank->entries[expert].values, sizeof row->values);
    memcpy(row->scales, bank->entries[expert].scales, sizeof row->scales);
    row->gate_scale = factor(bank->gate_scale, expert);
    row->up_scale = factor(bank->up_scale, expert);
    row->down_scale = factor(bank->down_scale, expert);
}

/* What a row's shadow holds when nobody knows what the row does: no entry is like it. */
static void forget(struct plec_cuda_entry *shadow) {
    uint32_t generation = shadow->generation;
    memset(shadow, 0xFF, sizeof *shadow);
    shadow->generation = generation;
}

static struct plec_cuda_table *find(struct plec_cuda_device *device, const struct plec_bank *bank) {
    for (uint32_t i = 0; i < device->n_tables; i++)
        if (device->tables[i].key == bank->entries && device->tables[i].n_rows == bank->n_entries)
            return &device->tables[i];
    return NULL;
}

/* Gives all tables up, when no graph reads one, or may yet. */
static enum plec_status make_room(struct plec_cuda_device *device, struct plec_error *err) {
    bool captured = pthread_mutex_trylock(&device->captures) != 0;
    bool locked = !captured;
    for (uint32_t i = 0; i < device->n_tables; i++)
        captured = captured || device->tables[i].captured;
    enum plec_status status =
        captured ? plec_fail(err, PLEC_NO_MEMORY, "TablesFull",
                             "%u tables of %u rows in all, and graphs read some of them",
                             device->n_tables, device->n_rows)
                 : plec_cuda_check(cudaDeviceSynchronize(), err, "making room for a table");
    if (locked) pthread_mutex_unlock(&device->captures);
    if (status == PLEC_OK) device->n_tables = device->n_rows = 0;
    return status;
}

static struct plec_cuda_table *add(struct plec_cuda_launch *launch, const struct plec_bank *bank) {
    struct plec_cuda_device *device = launch->stream->device;
    if (device->n_tables == PLEC_CUDA_TABLES_MAX ||
        PLEC_CUDA_TABLE_ROWS_MAX - device->n_rows < bank->n_entries)
        launch->status = make_room(device, launch->err);
    if (launch->status != PLEC_OK) return NULL;
    struct plec_cuda_table *table = &device->tables[device->n_tables++];
    *table = (struct plec_cuda_table){
        .key = bank->entries, .first_row = device->n_rows, .n_rows = bank->n_entries};
    for (uint32_t i = 0; i < table->n_rows; i++) {
        device->shadow[table->first_row + i].generation = 0;
        forget(&device->shadow[table->first_row + i]);
    }
    device->n_rows += bank->n_entries;
    return table;
}

/* Makes the launch's stream wait for what another stream does with the table. A capture cannot wait
 * for the outside, nor the outside for it: its stream was synced, and does nothing meanwhile. */
static void order(struct plec_cuda_launch *launch, struct plec_cuda_table *table) {
    struct plec_cuda_stream *stream = launch->stream, *other = table->stream;
    if (other != NULL && other != stream && !stream->capturing && !other->capturing) {
        launch->status = plec_cuda_check(cudaEventRecord(stream->device->order, other->handle),
                                         launch->err, "ordering two streams of one bank");
        if (launch->status == PLEC_OK)
            launch->status =
                plec_cuda_check(cudaStreamWaitEvent(stream->handle, stream->device->order, 0),
                                launch->err, "ordering two streams of one bank");
    }
    table->stream = stream;
}

static void refuse_capture(struct plec_cuda_launch *launch, uint32_t expert) {
    if (launch->status == PLEC_OK)
        launch->status = plec_fail(launch->err, PLEC_BAD_INPUT, "TableNotCurrent",
                                   "expert %u changed before its launch was captured", expert);
}

static void flush(struct plec_cuda_launch *launch, struct plec_cuda_table_args *args,
                  struct plec_cuda_entry *shadow) {
    if (args->n_rows == 0) return;
    if (!plec_cuda_launched(launch, plec_cuda_launch_table(args, launch->stream->handle), "table"))
        for (uint32_t i = 0; i < args->n_rows; i++)
            forget(&shadow[args->at[i]]);
    args->n_rows = 0;
}

/* Puts the expert's row among those to write when it is not what the shadow has. */
static void update(struct plec_cuda_launch *launch, struct plec_cuda_table_args *args,
                   const struct plec_bank *bank, struct plec_cuda_entry *shadow, uint32_t expert) {
    struct plec_cuda_entry row;
    make_row(&row, bank, expert);
    row.generation = shadow[expert].generation;
    if (memcmp(&row, &shadow[expert], sizeof row) == 0) return;
    if (launch->stream->capturing) {
        refuse_capture(launch, expert);
        return;
    }
    row.generation++;
    shadow[expert] = row;
    args->at[args->n_rows] = expert;
    args->rows[args->n_rows++] = row;
    if (args->n_rows == PLEC_CUDA_TABLE_ROWS) flush(launch, args, shadow);
}

static const struct plec_cuda_entry *take_locked(struct plec_cuda_launch *launch,
                                                 const struct plec_bank *bank, const uint32_t *part,
                                                 uint32_t n_part) {
    struct plec_cuda_device *device = launch->stream->device;
    struct plec_cuda_table *table = find(device, bank);
    bool capturing = launch->stream->capturing;
    if (table == NULL && capturing) refuse_capture(launch, 0);
    if (table == NULL && !capturing) table = add(launch, bank);
    if (table == NULL) return NULL;
    order(launch, table);
    struct plec_cuda_table_args args = {.table = device->rows + table->first_row};
    struct plec_cuda_entry *shadow = device->shadow + table->first_row;
    for (uint32_t i = 0; i < n_part; i++)
        if (part == NULL || part[i] < bank->n_entries)
            update(launch, &args, bank, shadow, part != NULL ? part[i] : i);
    flush(launch, &args, shadow);
    if (launch->status != PLEC_OK) return NULL;
    table->captured = table->captured || capturing;
    return args.table;
}

const struct plec_cuda_entry *plec_cuda_entries_take(struct plec_cuda_launch *launch,
                                                     const struct plec_bank *bank,
                                                     const uint32_t *part, uint32_t n_part) {
    struct plec_cuda_device *device = launch->stream->device;
    if (launch->status != PLEC_OK) return NULL;
    pthread_mutex_lock(&device->mutex);
    const struct plec_cuda_entry *rows =
        take_locked(launch, bank, part, part == NULL && n_part != 0 ? bank->n_entries : n_part);
    pthread_mutex_unlock(&device->mutex);
    return rows;
}

void plec_cuda_entries_leave(struct plec_cuda_stream *stream) {
    struct plec_cuda_device *device = stream->device;
    pthread_mutex_lock(&device->mutex);
    for (uint32_t i = 0; i < device->n_tables; i++)
        if (device->tables[i].stream == stream) device->tables[i].stream = NULL;
    pthread_mutex_unlock(&device->mutex);
}
