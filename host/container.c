#include "host/container.h"

const char *plec_container_kind_name(enum plec_container_kind kind) {
    switch (kind) {
    case PLEC_CONTAINER_VINDEX: return "vindex";
    case PLEC_CONTAINER_LYRW: return "lyrw";
    case PLEC_CONTAINER_GGUF: return "gguf";
    case PLEC_CONTAINER_TEZW: return "tezw";
    }
    return "unknown";
}
