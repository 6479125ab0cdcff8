/* bound.h: one layer of a bank directory bound, or refused, in one line of a test. */
#ifndef PLEC_TESTS_SUPPORT_BOUND_H
#define PLEC_TESTS_SUPPORT_BOUND_H

#include "host/container.h"
#include "tests/support/bank_files.h"

#include <string>
#include <vector>

namespace plec_test {

/* One bind of a layer, held open while the object lives. */
class Bound {
  public:
    Bound(const std::string &path, const char *profile = nullptr, uint32_t layer = 0) {
        plec_container_options options = {};
        options.profile = profile;
        options.log = {[](void *user, plec_log_level, const char *text) {
                           static_cast<Bound *>(user)->said.push_back(text);
                       },
                       this};
        status = plec_container_open(&container_, path.c_str(), &options, &err);
        if (status == PLEC_OK) status = plec_container_bind(&bound, container_, layer, &err);
        name = status == PLEC_OK ? "" : err.name;
        message = status == PLEC_OK ? "" : err.message;
    }
    ~Bound() {
        if (status == PLEC_OK) plec_bound_layer_close(&bound);
        plec_container_close(container_);
    }
    Bound(const Bound &) = delete;
    Bound &operator=(const Bound &) = delete;
    bool says(const std::string &part) const { return message.find(part) != std::string::npos; }

    plec_status status;
    plec_error err = {};
    plec_bound_layer bound = {};
    std::string name, message;
    std::vector<std::string> said;

  private:
    plec_container *container_ = nullptr;
};

/* "" when it binds, else the refusal's name. */
inline std::string refusal(BankDirectory &dir, const char *profile = nullptr) {
    return Bound(dir.write(), profile).name;
}

inline std::string refusal_of_bank(const BankFile &file) {
    BankDirectory dir;
    dir.add("routed/layer_000", file);
    return refusal(dir);
}

} // namespace plec_test
#endif
