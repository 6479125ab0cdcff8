#include "lyrw/cursor.h"
#include "lyrw/findings.h"
#include "lyrw/status.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

TEST(Status, EscapesControlBytesOfFileNames) {
    plec_error err;
    EXPECT_EQ(plec_fail(&err, PLEC_MISSING, "CannotOpen", "%s", "a\x1b[31mb\n"), PLEC_MISSING);
    EXPECT_STREQ(err.message, "CannotOpen: a\\x1b[31mb\\x0a");
    EXPECT_STREQ(err.name, "CannotOpen");
}

TEST(Status, MessagesAreUtf8WhateverTheNameHolds) {
    const std::pair<const char *, const char *> cases[] = {
        {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"a\xff", "a\\xff"},        /* never a first byte */
        {"\xe2\x82", "\\xe2\\x82"}, /* cut short */
        {"\xe2\x82z", "\\xe2\\x82z"},
        {"\xc0\xaf", "\\xc0\\xaf"}, /* overlong */
        {"\xe0\x80\xaf", "\\xe0\\x80\\xaf"},
        {"\xed\xa0\x80", "\\xed\\xa0\\x80"},          /* a surrogate */
        {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"}, /* beyond U+10FFFF */
        {"\xc2\x9b"
         "31m",
         "\\xc2\\x9b"
         "31m"}, /* CSI in one character */
        {"\xc2\xa0", "\xc2\xa0"},
    };
    for (const auto &[text, wanted] : cases) {
        plec_error err;
        plec_fail(&err, PLEC_MISSING, "N", "%s", text);
        EXPECT_EQ(std::string(err.message), "N: " + std::string(wanted));
        plec_error_context(&err, "%s", text);
        EXPECT_EQ(std::string(err.message), std::string(wanted) + ": N: " + wanted)
            << "escaping twice changes nothing";
    }
}

TEST(Status, ACutFallsBetweenCharacters) {
    for (size_t n = 0; n < 4; n++) {
        std::string text = std::string(n, 'x');
        while (text.size() < 2000)
            text += "\xf0\x9f\x98\x80";
        plec_error err, again;
        plec_fail(&err, PLEC_MISSING, "N", "%s", text.c_str());
        plec_fail(&again, PLEC_MISSING, "N", "%s", err.message + 3);
        EXPECT_STREQ(err.message, again.message);
    }
}

TEST(Status, LongTextIsCutInsideTheMessage) {
    plec_error err;
    std::string text(5000, 'x');
    plec_fail(&err, PLEC_MALFORMED, "Long", "%s", text.c_str());
    EXPECT_LT(std::string(err.message).size(), size_t(PLEC_ERROR_MESSAGE_MAX));
}

TEST(Status, ContextStandsInFront) {
    plec_error err;
    plec_fail_at(&err, PLEC_MALFORMED, "Truncated", 24, "bank table");
    plec_error_context(&err, "layer %d", 3);
    EXPECT_STREQ(err.message, "layer 3: Truncated: bank table at byte 24");
    EXPECT_EQ(err.byte, 24u);
}

TEST(Cursor, FirstReadThatDoesNotFitSticks) {
    const uint8_t bytes[] = {1, 2, 3, 4, 5};
    plec_cursor cursor = plec_cursor_at(bytes, sizeof bytes, 1);
    EXPECT_EQ(plec_cursor_u16(&cursor), 0x0302);
    EXPECT_EQ(plec_cursor_u32(&cursor), 0u);
    EXPECT_EQ(plec_cursor_u8(&cursor), 0u) << "a later read that would fit must not succeed";
    plec_error err;
    EXPECT_EQ(plec_cursor_status(&cursor, "thing", &err), PLEC_MALFORMED);
    EXPECT_STREQ(err.message, "Truncated: thing: need 4 bytes, have 2 at byte 3");
}

TEST(Cursor, HugeLengthDoesNotWrap) {
    const uint8_t bytes[8] = {};
    plec_cursor cursor = plec_cursor_at(bytes, sizeof bytes, 4);
    EXPECT_EQ(plec_cursor_bytes(&cursor, UINT64_MAX - 1), nullptr);
    EXPECT_TRUE(cursor.failed);
}

TEST(Cursor, CheckedArithmeticRefusesOverflow) {
    uint64_t out = 7;
    EXPECT_FALSE(plec_add_u64(&out, UINT64_MAX, 1));
    EXPECT_FALSE(plec_mul_u64(&out, UINT64_C(1) << 33, UINT64_C(1) << 31));
    EXPECT_FALSE(plec_round_up_u64(&out, UINT64_MAX - 3, 64));
    EXPECT_EQ(out, 7u);
    EXPECT_TRUE(plec_round_up_u64(&out, 64, 64));
    EXPECT_EQ(out, 64u);
}

TEST(Findings, AllDefectsAreToldAtOnce) {
    plec_findings findings = {};
    plec_findings_add(&findings, PLEC_NOTE, "Remark", "layer=1");
    plec_findings_add(&findings, PLEC_DEFECT, "DuplicateLayer", "layer=%d", 2);
    plec_findings_add(&findings, PLEC_DEFECT, "BankHasNoStorage", "layer=3");
    plec_error err;
    EXPECT_EQ(plec_findings_to_error(&findings, PLEC_MALFORMED, &err), PLEC_MALFORMED);
    EXPECT_STREQ(err.message, "DuplicateLayer: layer=2; BankHasNoStorage: layer=3");
    plec_findings_clear(&findings);
    EXPECT_EQ(plec_findings_to_error(&findings, PLEC_MALFORMED, &err), PLEC_OK);
}

TEST(Findings, CountsWhatItDoesNotKeep) {
    plec_findings findings = {};
    for (int i = 0; i < PLEC_FINDINGS_MAX + 10; i++)
        plec_findings_add(&findings, PLEC_DEFECT, "Many", "entry=%d", i);
    EXPECT_EQ(findings.n_items, size_t(PLEC_FINDINGS_MAX));
    EXPECT_EQ(findings.n_defects, uint64_t(PLEC_FINDINGS_MAX + 10));
    plec_error err;
    EXPECT_NE(plec_findings_to_error(&findings, PLEC_MALFORMED, &err), PLEC_OK);
    EXPECT_NE(std::string(err.message).find("and "), std::string::npos);
    plec_findings_clear(&findings);
}
