/* upload.h: a layer's weights in device memory, for a device whose launches read nothing else.
 *
 * Owns: one block of device memory a layer, and the entries that point into it. While it opens, as
 * much again as one expert takes: its bytes land there, and arrive from there in the form
 * that the device's launches read (plec_launch_arrive). Never: streams; experts that come and go
 * are the streamer's.
 */
#ifndef PLEC_HOST_UPLOAD_H
#define PLEC_HOST_UPLOAD_H

#include "device/device.h"
#include "host/arena.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A zeroed upload is empty. */
struct plec_upload {
    struct plec_device *device;
    void *memory; /* device; NULL: nothing was copied */
    struct plec_arena entries;
};

/* What not every layer needs. */
enum plec_upload_parts {
    PLEC_UPLOAD_ROUTED = 1, /* the entries of the routed bank */
    PLEC_UPLOAD_ROUTER = 2
};

/* Copies what launches of a layer read: *layer is `from` with its pointers into device memory, but
 * for the scales of experts, which launches carry, and the parts [enum plec_upload_parts] that are
 * not asked for, which are left as they are. `from` must outlive *layer. Waits for the copies.
 * PLEC_NO_MEMORY, PLEC_NO_DEVICE; then *out is empty. */
PLEC_MUST_USE enum plec_status plec_upload_open(struct plec_upload *out, struct plec_layer *layer,
                                                struct plec_device *device,
                                                const struct plec_layer *from, unsigned parts,
                                                struct plec_error *err);
void plec_upload_close(struct plec_upload *upload);

#ifdef __cplusplus
}
#endif
#endif
