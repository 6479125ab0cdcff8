/* sources.h: everything under tests/data that is meant to open, and its layers. */
#ifndef PLEC_TESTS_SUPPORT_SOURCES_H
#define PLEC_TESTS_SUPPORT_SOURCES_H

#include "host/container.h"
#include "tests/support/data.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace plec_test {

inline std::vector<std::string> sources() {
    namespace fs = std::filesystem;
    std::vector<std::string> paths;
    for (const char *folder : {"containers", "run"})
        for (const auto &entry : fs::directory_iterator(data_path(folder)))
            if (entry.is_directory()) paths.push_back(entry.path());
    for (const auto &entry : fs::directory_iterator(data_path("lyrw")))
        if (entry.path().extension() == ".lyrw") paths.push_back(entry.path());
    for (const auto &folder : fs::directory_iterator(data_path("gguf"))) {
        if (!fs::exists(folder.path() / "case.json")) continue;
        bool split = !fs::exists(folder.path() / "model.gguf");
        paths.push_back(folder.path() / (split ? "model-00001-of-00003.gguf" : "model.gguf"));
    }
    paths.push_back(data_path("tezw/tiny/model.tezw"));
    std::sort(paths.begin(), paths.end());
    return paths;
}

struct SourceLayer {
    uint32_t number, n_experts;
};

/* The layers that can be bound. */
inline std::vector<SourceLayer> layers_of(const std::string &path) {
    std::vector<SourceLayer> layers;
    struct plec_container *container = nullptr;
    if (plec_container_open(&container, path.c_str(), nullptr, nullptr) != PLEC_OK) return layers;
    for (size_t i = 0; i < plec_container_n_layers(container); i++) {
        struct plec_layer_info info;
        struct plec_bound_layer bound = {};
        plec_container_layer_info(&info, container, i);
        if (plec_container_bind(&bound, container, info.layer, nullptr) != PLEC_OK) continue;
        layers.push_back({info.layer, bound.layer.router.n_experts});
        plec_bound_layer_close(&bound);
    }
    plec_container_close(container);
    return layers;
}

} // namespace plec_test
#endif
