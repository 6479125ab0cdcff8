/* converted.h: containers converted into a fresh folder, and bound layers held against each other
 * value for value. */
#ifndef PLEC_TESTS_SUPPORT_CONVERTED_H
#define PLEC_TESTS_SUPPORT_CONVERTED_H

#include "host/convert.h"
#include "tests/support/data.h"

#include <string>
#include <vector>

namespace plec_test {

/* One conversion, done when the object exists. */
class Converted {
  public:
    explicit Converted(const std::string &source, plec_convert_options options = {});
    /* Into a folder of the caller's. */
    Converted(const std::string &source, const std::string &destination,
              plec_convert_options options);
    std::string path(const std::string &name = "") const;
    bool says(const std::string &part) const {
        return std::string(error.message).find(part) != std::string::npos;
    }

    plec_status status = PLEC_OK;
    plec_error error = {};
    plec_convert_report report = {};

  private:
    void run(const std::string &source, const std::string &destination,
             plec_convert_options options);

    TempDir dir_;
    std::string destination_;
};

/* Every number and every weight of two bound layers is the same, whatever form it has. */
void expect_same_layer(const plec_bound_layer &got, const plec_bound_layer &wanted);

/* Every file under a folder by its name under it. */
std::vector<std::string> files_under(const std::string &root);
/* The folders hold the same files with the same bytes. */
void expect_same_files(const std::string &got, const std::string &wanted);
/* `plectrum verify --hash` finds no defect. */
void expect_sound(const std::string &path);

/* Converts the source, and expects a sound container whose layer is the source's, weight for
 * weight. A layer is asked for as the source numbers it. */
void expect_converts(const std::string &source, uint32_t layer, plec_convert_options options = {});

} // namespace plec_test
#endif
