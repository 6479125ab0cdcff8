#include "tests/support/data.h"
#include "tools/plectrum/npy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

using namespace plec_test;

namespace {

/* A file of the given version with `literal` as its header, unpadded, and n_bytes of values. */
std::string npy_text(const std::string &literal, size_t n_bytes, int version = 1) {
    std::string text = "\x93NUMPY";
    text += static_cast<char>(version);
    text += '\0';
    for (size_t i = 0; i < (version == 1 ? 2u : 4u); i++)
        text += static_cast<char>(literal.size() >> (8 * i) & 255);
    text += literal;
    for (size_t i = 0; i < n_bytes; i++)
        text += static_cast<char>(i);
    return text;
}

std::string dict(const std::string &descr, const std::string &order, const std::string &shape) {
    return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
}

/* "" when it parses, else the name of the refusal. Parsed from a copy of the exact size, so that a
 * sanitizer sees a read past the end. */
std::string parse(const std::string &text, plec_npy_view *view = nullptr) {
    std::vector<char> exact(text.begin(), text.end());
    plec_npy_view own;
    plec_error err = {};
    plec_status status =
        plec_npy_parse(view != nullptr ? view : &own, exact.data(), exact.size(), &err);
    return status == PLEC_OK ? "" : err.name;
}

TEST(Npy, ReadsWhatNumPyWrites) {
    for (const char *name : {"x.npy", "ids.npy", "y.npy"}) {
        std::string path = data_path("run/run01_sigmoid_two_segments/") + name;
        plec_npy npy;
        plec_error err = {};
        ASSERT_EQ(plec_npy_open(&npy, path.c_str(), &err), PLEC_OK) << err.message;
        Npy expected = read_npy(path);
        EXPECT_EQ(npy.view.type, expected.descr == "<i4" ? PLEC_NPY_I32 : PLEC_NPY_F32);
        ASSERT_EQ(npy.view.n_dims, 2u);
        EXPECT_EQ(npy.view.dims[0], expected.shape[0]);
        EXPECT_EQ(npy.view.dims[1], expected.shape[1]);
        ASSERT_EQ(npy.view.n_values, expected.values.size());
        if (npy.view.type == PLEC_NPY_F32) {
            std::vector<float> values = expected.f32();
            EXPECT_EQ(memcmp(npy.view.values, values.data(), values.size() * 4), 0);
        }
        plec_npy_close(&npy);
    }
}

TEST(Npy, ReadsBothVersionsEveryTypeAndShape) {
    plec_npy_view view;
    EXPECT_EQ(parse(npy_text(dict("<f4", "False", "(3, 2)"), 24), &view), "");
    EXPECT_EQ(view.n_values, 6u);
    EXPECT_EQ(parse(npy_text(dict("<f2", "False", "(5,)"), 10, 2), &view), "");
    EXPECT_EQ(view.type, PLEC_NPY_F16);
    EXPECT_EQ(view.n_dims, 1u);
    EXPECT_EQ(parse(npy_text(dict("<i4", "False", "()"), 4), &view), "");
    EXPECT_EQ(view.n_dims, 0u);
    EXPECT_EQ(view.n_values, 1u);
    EXPECT_EQ(parse(npy_text(dict("<i4", "False", "(0, 7)"), 0), &view), "");
    EXPECT_EQ(view.n_values, 0u);
    EXPECT_EQ(parse(npy_text("{\"shape\":(2,),\"fortran_order\":False,\"descr\":\"<i4\"}  \n", 8)),
              "")
        << "any order of members, either quote, padding";
}

TEST(Npy, RefusalsAreNamed) {
    EXPECT_EQ(parse(""), "NotNpy");
    EXPECT_EQ(parse("\x93NUMPX\x01"), "NotNpy");
    EXPECT_EQ(parse(npy_text(dict("<f4", "False", "(1,)"), 4, 3)), "NpyVersion");
    EXPECT_EQ(parse(npy_text(dict("<f8", "False", "(1,)"), 8)), "WrongDtype");
    EXPECT_EQ(parse(npy_text(dict(">f4", "False", "(1,)"), 4)), "WrongDtype");
    EXPECT_EQ(parse(npy_text(dict("<i8", "False", "(1,)"), 8)), "WrongDtype");
    EXPECT_EQ(
        parse(npy_text("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", 4)),
        "WrongDtype");
    EXPECT_EQ(parse(npy_text(dict("<f4", "True", "(3, 2)"), 24)), "FortranOrder");
    EXPECT_EQ(parse(npy_text(dict("<f4", "False", "(3, 2)"), 23)), "ShortArray");
    EXPECT_EQ(parse(npy_text(dict("<f4", "False", "(3, 2)"), 25)), "TrailingBytes");
    EXPECT_EQ(parse(npy_text(dict("<f4", "False", "(1, 1, 1, 1, 1)"), 4)), "TooManyDimensions");
    EXPECT_EQ(parse(npy_text(dict("<f4", "False", "(4294967296, 4294967296)"), 0)),
              "ShapeOverflow");
    EXPECT_EQ(parse(npy_text(dict("<f4", "False", "(4611686018427387904,)"), 0)), "ShapeOverflow");
}

TEST(Npy, MalformedHeadersAreNamed) {
    const std::string bad[] = {
        "",
        "{",
        "{}",
        "[1, 2]",
        dict("<f4", "Maybe", "(1,)"),
        dict("<f4", "False", "(1)"),
        dict("<f4", "False", "(-1,)"),
        dict("<f4", "False", "(1.0,)"),
        dict("<f4", "False", "(1,"),
        dict("<f4", "False", "(1 2)"),
        dict("<f4", "False", "(99999999999999999999,)"),
        dict("<f4", "False", "(1,)") + "x",
        dict("<f4<f4<f4<f4<f4<f4", "False", "(1,)"),
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}",
        "{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4",
        "{'descr'",
        "{'descr': ",
    };
    for (const std::string &literal : bad)
        EXPECT_EQ(parse(npy_text(literal, 4)), "NpyHeader") << literal;
}

TEST(Npy, RefusesEveryPrefix) {
    std::string whole = read_text(data_path("run/run01_sigmoid_two_segments/ids.npy"));
    ASSERT_EQ(parse(whole), "");
    for (size_t n = 0; n < whole.size(); n++)
        EXPECT_NE(parse(whole.substr(0, n)), "") << n;
    EXPECT_EQ(parse(whole + "x"), "TrailingBytes");
}

TEST(Npy, AHeaderLengthPastTheEndIsTruncated) {
    std::string text = npy_text(dict("<f4", "False", "(1,)"), 4, 2);
    text[11] = '\x7f';
    EXPECT_EQ(parse(text), "Truncated");
}

TEST(Npy, WritesWhatItReadsBack) {
    TempDir dir;
    std::vector<float> values = {1, -2, 3.5f, 1e-30f, 5, 6};
    plec_error err = {};
    ASSERT_EQ(plec_npy_write(dir.path("a.npy").c_str(), PLEC_NPY_F32, values.data(), 2, 3, &err),
              PLEC_OK)
        << err.message;
    plec_npy npy;
    ASSERT_EQ(plec_npy_open(&npy, dir.path("a.npy").c_str(), &err), PLEC_OK) << err.message;
    EXPECT_EQ(npy.view.dims[0], 2u);
    EXPECT_EQ(npy.view.dims[1], 3u);
    EXPECT_EQ(memcmp(npy.view.values, values.data(), 24), 0);
    EXPECT_EQ((npy.view.values - npy.mapping.data) % 64, 0) << "as NumPy aligns";
    plec_npy_close(&npy);
    EXPECT_EQ(plec_npy_write(dir.path("no/such/folder.npy").c_str(), PLEC_NPY_I32, values.data(), 1,
                             1, &err),
              PLEC_IO);
    EXPECT_EQ(plec_npy_write("/dev/full", PLEC_NPY_F32, values.data(), 2, 3, &err), PLEC_IO)
        << "a full disk is no success";
}

TEST(Npy, AMissingFileIsNamed) {
    plec_npy npy;
    plec_error err = {};
    EXPECT_EQ(plec_npy_open(&npy, "/no/such/x.npy", &err), PLEC_MISSING);
    EXPECT_NE(std::string(err.message).find("/no/such/x.npy"), std::string::npos);
    plec_npy_close(&npy);
}

} // namespace
