// `plectrum inspect` of LYRW files: the JSON object against the text beside every test file, and
// files that lie.
#include "tests/support/data.h"

#include <gtest/gtest.h>
#include <jansson.h>

#include <cstring>
#include <memory>
#include <sstream>

#include <sys/resource.h>
#include <unistd.h>

#include "tests/support/dump.h"

using namespace plec_test;

namespace {

struct Decref {
    void operator()(json_t *json) const { json_decref(json); }
};
using Json = std::unique_ptr<json_t, Decref>;

Json parse(const std::string &text) {
    json_error_t error;
    json_t *json = json_loads(text.c_str(), JSON_REJECT_DUPLICATES, &error);
    EXPECT_NE(json, nullptr) << error.text << "\n" << text.substr(0, 200);
    return Json(json);
}

std::string value_text(const json_t *value) {
    if (json_is_string(value)) return json_string_value(value);
    if (json_is_null(value)) return "null";
    if (json_is_boolean(value)) return json_is_true(value) ? "1" : "0";
    return std::to_string(json_integer_value(value));
}

// "a,b,c": the keys of an object in their order.
std::string keys(json_t *object) {
    std::string text;
    for (void *i = json_object_iter(object); i != nullptr; i = json_object_iter_next(object, i))
        text += (text.empty() ? "" : ",") + std::string(json_object_iter_key(i));
    return text;
}

// Expects member `key` to be what field `name` of the line says; `none` reads as null.
void expect_field(json_t *object, const char *key, const std::string &line, const char *name) {
    std::string wanted = field(line, name);
    if (strcmp(key, "pair_id") == 0 && wanted == "none") wanted = "null";
    if (wanted == "undefined") wanted = "null";
    if (wanted.compare(0, 2, "0x") == 0) wanted = std::to_string(std::stoul(wanted, nullptr, 16));
    EXPECT_EQ(value_text(json_object_get(object, key)), wanted) << key << " of: " << line;
}

// Expects the JSON of one fixture to hold every line of its text, in order, and nothing more.
class Comparison {
  public:
    explicit Comparison(json_t *json) : json_(json) {}

    void line(const std::string &line) {
        std::string kind = line.substr(0, line.find(' '));
        if (kind == "header") {
            json_t *header = json_object_get(json_, "header");
            EXPECT_EQ(keys(header), "format_version,logical_layer,num_banks,num_segments,flags,"
                                    "multi_segment,reserved");
            expect_field(header, "format_version", line, "version");
            for (const char *key :
                 {"logical_layer", "num_banks", "num_segments", "flags", "multi_segment"})
                expect_field(header, key, line, key);
            expect_field(header, "reserved", line, "reserved_raw");
        } else if (kind == "layout") {
            expect_field(json_, "payload_start", line, "payload_start");
        } else if (kind == "bank") {
            json_t *bank = next("banks", &n_banks_);
            EXPECT_EQ(keys(bank), "ordinal,id,kind,schemas,browse,flags,num_entries,input_dim,"
                                  "intermediate_dim,output_dim");
            for (const char *key : {"ordinal", "id", "kind", "schemas", "browse", "num_entries",
                                    "input_dim", "intermediate_dim", "output_dim"})
                expect_field(bank, key, line, key);
            expect_field(bank, "flags", line, "flags_raw");
        } else if (kind == "schema") {
            json_t *schema = next("schemas", &n_schemas_);
            EXPECT_EQ(
                keys(schema),
                "bank_ordinal,index,role,format,packing,pair_id,layout,rows,cols,defined_len");
            for (const char *key : {"bank_ordinal", "index", "role", "format", "packing", "pair_id",
                                    "layout", "rows", "cols", "defined_len"})
                expect_field(schema, key, line, key);
        } else if (kind == "segment") {
            json_t *segment = next("segments", &n_segments_);
            EXPECT_EQ(keys(segment), "ordinal,bank,index,first_entry,entry_count");
            for (const char *key : {"ordinal", "bank", "index"})
                expect_field(segment, key, line, key);
            expect_field(segment, "first_entry", line, "first");
            expect_field(segment, "entry_count", line, "count");
        } else if (kind == "region" && line.find(" absent") == std::string::npos) {
            region(line);
        }
    }

    void end() {
        EXPECT_EQ(n_banks_, json_array_size(json_object_get(json_, "banks")));
        EXPECT_EQ(n_schemas_, json_array_size(json_object_get(json_, "schemas")));
        EXPECT_EQ(n_segments_, json_array_size(json_object_get(json_, "segments")));
        EXPECT_EQ(n_regions_, json_array_size(json_object_get(json_, "regions")));
    }

    size_t n_errors = 0, n_decoded = 0;

  private:
    json_t *next(const char *list, size_t *at) {
        return json_array_get(json_object_get(json_, list), (*at)++);
    }

    void region(const std::string &line) {
        json_t *region = next("regions", &n_regions_);
        for (const char *key : {"bank", "entry", "schema", "role"})
            expect_field(region, key, line, key);
        if (size_t at = line.find(" error "); at != std::string::npos) {
            EXPECT_EQ(keys(region), "bank,entry,schema,role,error");
            std::string name = line.substr(at + 7, line.find(' ', at + 7) - at - 7);
            EXPECT_EQ(value_text(json_object_get(region, "error")).compare(0, name.size(), name), 0)
                << line;
            n_errors++;
            return;
        }
        for (const char *key : {"offset", "length", "fnv"})
            expect_field(region, key, line, key);
        if (field(line, "decoded_fnv").empty()) {
            bool only_here = line.find("mxfp8: no codec in the reference") != std::string::npos;
            EXPECT_TRUE(only_here || keys(region) == "bank,entry,schema,role,offset,length,fnv")
                << line;
            return;
        }
        EXPECT_EQ(keys(region), "bank,entry,schema,role,offset,length,fnv,decoded_fnv");
        expect_field(region, "decoded_fnv", line, "decoded_fnv");
        n_decoded++;
    }

    json_t *json_;
    size_t n_banks_ = 0, n_schemas_ = 0, n_segments_ = 0, n_regions_ = 0;
};

const char top_keys[] = "kind,bytes,header,payload_start,banks,schemas,segments,regions,unknown";

std::string lyrw(const std::string &name) {
    return data_path("lyrw/" + name + ".lyrw");
}

} // namespace

TEST(Inspect, JsonOfEveryTestFileIsItsText) {
    size_t n_files = 0, n_decoded = 0, n_errors = 0;
    for (const char *folder : {"lyrw", "lyrw/odd", "lyrw/bad"})
        for (const std::string &name : list_folder(data_path(folder), ".lyrw")) {
            std::string path = data_path(std::string(folder) + "/" + name);
            std::string text = read_text(path + ".txt");
            ToolResult result = run_tool({"inspect", "--json", "--hash", path + ".lyrw"});
            SCOPED_TRACE(name);
            n_files++;
            if (size_t at = text.find("\nparse_error "); at != std::string::npos) {
                EXPECT_EQ(result.exit_status, 3);
                EXPECT_EQ(result.out, "");
                std::string error = text.substr(at + 13, text.find(' ', at + 13) - at - 13);
                EXPECT_NE(result.err.find(error), std::string::npos) << result.err;
                continue;
            }
            Json json = parse(result.out);
            ASSERT_NE(json, nullptr);
            EXPECT_EQ(keys(json.get()), top_keys);
            EXPECT_EQ(value_text(json_object_get(json.get(), "kind")), "lyrw");
            Comparison comparison(json.get());
            std::istringstream lines(text);
            std::string line;
            std::getline(lines, line);
            expect_field(json.get(), "bytes", line, "bytes");
            while (std::getline(lines, line))
                comparison.line(line);
            comparison.end();
            n_decoded += comparison.n_decoded;
            n_errors += comparison.n_errors;
            bool found = comparison.n_errors > 0 || name == "offset_not_aligned";
            EXPECT_EQ(result.exit_status, found ? 1 : 0) << result.err;
        }
    EXPECT_GE(n_files, 54u);
    EXPECT_GT(n_decoded, 100u);
    EXPECT_EQ(n_errors, 2u);
}

TEST(Inspect, WithoutEntriesTheRegionListIsEmpty) {
    ToolResult result = run_tool({"inspect", "--json", lyrw("01_dense_decomposed_f32")});
    Json json = parse(result.out);
    EXPECT_EQ(keys(json.get()), top_keys);
    EXPECT_EQ(json_array_size(json_object_get(json.get(), "regions")), 0u);
    json_t *entries = json_array_get(json_object_get(json.get(), "regions"), 0);
    EXPECT_EQ(entries, nullptr);
}

TEST(Inspect, EntriesWithoutHashReadNoPayload) {
    ToolResult result =
        run_tool({"inspect", "--json", "--entries", lyrw("01_dense_decomposed_f32")});
    Json json = parse(result.out);
    json_t *region = json_array_get(json_object_get(json.get(), "regions"), 2);
    EXPECT_EQ(keys(region), "bank,entry,schema,role,offset,length");
}

TEST(Inspect, UnknownTagsAreToldOnceEach) {
    Json json = parse(run_tool({"inspect", "--json", lyrw("08_unknown_tags")}).out);
    json_t *unknown = json_object_get(json.get(), "unknown");
    std::string text;
    for (size_t i = 0; i < json_array_size(unknown); i++)
        text += value_text(json_array_get(unknown, i)) + " ";
    EXPECT_EQ(text, "bank_kind_55 format_901 packing_902 layout_903 role_8 role_300 format_65535 ");
    EXPECT_NE(run_tool({"inspect", lyrw("08_unknown_tags")}).out.find("format_901"),
              std::string::npos);
}

TEST(Inspect, TrailingBytesAreARemark) {
    ToolResult result = run_tool({"inspect", lyrw("odd/trailing_garbage")});
    EXPECT_EQ(result.exit_status, 0);
    EXPECT_NE(result.err.find("77 bytes after the last region"), std::string::npos) << result.err;
}

TEST(Inspect, PaddingUpToThePayloadIsNoRemark) {
    ToolResult result = run_tool({"inspect", lyrw("13_no_banks_no_segments")});
    EXPECT_EQ(result.exit_status, 0);
    EXPECT_EQ(result.err, "") << "the reference writer ends a file without regions so";
}

TEST(Inspect, OverlapIsFoundInPermutedFilesToo) {
    EXPECT_EQ(run_tool({"inspect", lyrw("07_permuted_role_major")}).exit_status, 0);
    // Entry 0's down moves into the middle of entry 3's gate_up_fused, which lies before it.
    TempDir dir;
    std::vector<uint8_t> bytes = read_file(lyrw("07_permuted_role_major"));
    bytes[100 + 16] = 0x80, bytes[100 + 17] = 0x01; // offset 384
    write_file(dir.path("f.lyrw"), bytes.data(), bytes.size());
    ToolResult result = run_tool({"inspect", dir.path("f.lyrw")});
    EXPECT_EQ(result.exit_status, 1);
    EXPECT_NE(result.err.find("Overlap"), std::string::npos) << result.err;
}

TEST(Inspect, RegionInsideTheTablesIsAnOverlap) {
    TempDir dir;
    std::vector<uint8_t> bytes = read_file(lyrw("odd/base"));
    bytes[100] = 64, bytes[101] = 0;
    write_file(dir.path("f.lyrw"), bytes.data(), bytes.size());
    EXPECT_EQ(run_tool({"inspect", dir.path("f.lyrw")}).exit_status, 1);
}

TEST(Inspect, NotAFileIsThree) {
    EXPECT_EQ(run_tool({"inspect", "/no/such/file.lyrw"}).exit_status, 3);
    EXPECT_EQ(run_tool({"inspect", "/dev/null"}).exit_status, 3);
    EXPECT_EQ(run_tool({"inspect"}).exit_status, 2);
}

TEST(Inspect, EveryPrefixIsThreeOrOne) {
    TempDir dir;
    std::vector<uint8_t> bytes = read_file(lyrw("odd/base"));
    for (size_t n = 0; n < bytes.size(); n += n < 256 ? 5 : 97) {
        write_file(dir.path("f.lyrw"), bytes.data(), n);
        ToolResult result = run_tool({"inspect", "--json", "--hash", dir.path("f.lyrw")});
        EXPECT_EQ(result.exit_status, n < 100 ? 3 : 1) << n;
        if (n < 100) continue;
        Json json = parse(result.out);
        EXPECT_EQ(json_array_size(json_object_get(json.get(), "regions")), 6u) << n;
    }
}

// A file of 100 bytes that promises 4,294,967,295 entries, and a hole of 64 GiB that holds as many
// slots: told in bounded time and memory.
TEST(Inspect, HugeCountsAreBounded) {
    TempDir dir;
    std::vector<uint8_t> bytes = read_file(lyrw("odd/base"));
    memset(&bytes[24 + 8], 0xFF, 4); // num_entries
    memset(&bytes[48 + 8], 0xFF, 4); // entry_count
    write_file(dir.path("f.lyrw"), bytes.data(), 100);
    ToolResult result = run_tool({"inspect", "--entries", "--json", dir.path("f.lyrw")});
    EXPECT_EQ(result.exit_status, 1);
    EXPECT_LT(result.out.size(), 32u << 20);
    EXPECT_NE(result.err.find("8589934590 of 8589934590 regions"), std::string::npos) << result.err;
    ASSERT_EQ(truncate(dir.path("f.lyrw").c_str(), off_t(64) << 30), 0);
    result = run_tool({"inspect", dir.path("f.lyrw")});
    EXPECT_EQ(result.exit_status, 1) << result.err;
    EXPECT_NE(result.err.find("were not looked at"), std::string::npos) << result.err;
}
