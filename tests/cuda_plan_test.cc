// The plan kernel against a plan made on the host, entry for entry.
#include "device/cuda/kernels.h"
#include "tests/support/cuda_device.h"

#include <algorithm>

namespace {

using namespace plec_test;

using Ids = std::vector<int32_t>;

struct HostPlan {
    std::vector<uint32_t> first, row_pair, row_token, left;
    std::vector<int32_t> pair_row;
    std::vector<std::vector<plec_cuda_tile>> tiles;
    std::vector<std::vector<uint32_t>> first_tile;
    uint32_t n_left = 0;
};

const std::vector<plec_cuda_class> three_classes = {{1, 8, 8}, {9, 64, 32}, {65, UINT32_MAX, 128}};

struct Case {
    uint32_t n_tokens, n_slots, n_entries;
    Ids ids; /* empty: slot j is entry j */
    std::vector<plec_cuda_class> lists = three_classes;
    bool drop = false;
};

HostPlan plan_on_host(const Case &c) {
    HostPlan plan;
    uint32_t n_pairs = c.n_tokens * c.n_slots;
    std::vector<std::vector<uint32_t>> pairs(c.n_entries);
    plan.pair_row.assign(n_pairs, PLEC_CUDA_NO_ROW);
    for (uint32_t pair = 0; pair < n_pairs; pair++) {
        int32_t id = c.ids.empty() ? static_cast<int32_t>(pair % c.n_slots) : c.ids[pair];
        if (id >= 0 && static_cast<uint32_t>(id) < c.n_entries)
            pairs[static_cast<size_t>(id)].push_back(pair);
    }
    for (uint32_t e = 0; e < c.n_entries; e++) {
        plan.first.push_back(static_cast<uint32_t>(plan.row_pair.size()));
        plan.left.push_back(!pairs[e].empty());
        plan.n_left += !pairs[e].empty();
        for (uint32_t pair : pairs[e]) {
            plan.pair_row[pair] = static_cast<int32_t>(plan.row_pair.size());
            plan.row_pair.push_back(pair);
            plan.row_token.push_back(pair / c.n_slots);
        }
    }
    plan.first.push_back(static_cast<uint32_t>(plan.row_pair.size()));
    for (const plec_cuda_class &list : c.lists) {
        std::vector<plec_cuda_tile> tiles;
        std::vector<uint32_t> first_tile;
        for (uint32_t e = 0; e < c.n_entries; e++) {
            uint32_t n = static_cast<uint32_t>(pairs[e].size());
            first_tile.push_back(static_cast<uint32_t>(tiles.size()));
            if (n == 0 || n < list.least_rows || n > list.most_rows) continue;
            for (uint32_t at = 0; at < n; at += list.width)
                tiles.push_back({e, plan.first[e] + at, std::min(list.width, n - at), 0});
        }
        first_tile.push_back(static_cast<uint32_t>(tiles.size()));
        plan.tiles.push_back(tiles);
        plan.first_tile.push_back(first_tile);
    }
    return plan;
}

/* Arrays of a plan in device memory, poisoned. */
class DevicePlan {
  public:
    DevicePlan(CudaDevice *cuda, const Case &c) : cuda_(cuda), case_(c) {
        size_t pairs = size_t(c.n_tokens) * c.n_slots, entries = c.n_entries;
        args.n_tokens = c.n_tokens, args.n_slots = c.n_slots, args.n_entries = c.n_entries;
        args.ids = cuda->upload(c.ids);
        args.n_lists = static_cast<uint32_t>(c.lists.size());
        std::copy(c.lists.begin(), c.lists.end(), args.lists);
        args.drop_bad_ids = c.drop;
        args.fault = cuda->upload(std::vector<plec_cuda_fault>(1));
        args.block_counts = array<uint32_t>(plec_cuda_plan_blocks(pairs) * entries);
        args.plan.first = array<uint32_t>(entries + 1);
        args.plan.row_pair = array<uint32_t>(pairs);
        args.plan.row_token = array<uint32_t>(pairs);
        args.plan.pair_row = array<int32_t>(pairs);
        args.plan.left = array<uint32_t>(entries);
        args.plan.counts = array<uint32_t>(PLEC_CUDA_LISTS);
        args.plan.n_left = array<uint32_t>(1);
        for (size_t i = 0; i < c.lists.size(); i++) {
            uint32_t most = plec_cuda_max_tiles(pairs, c.n_entries, c.lists[i].width);
            args.plan.first_tile[i] = array<uint32_t>(entries + 1);
            args.plan.tiles[i] = array<plec_cuda_tile>(most);
        }
    }
    void run() {
        cuda_->sync();
        ASSERT_EQ(plec_cuda_launch_plan(&args, nullptr), 0);
        ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    }
    template <class T> std::vector<T> get(const T *from, size_t n) {
        return cuda_->download(from, n);
    }
    plec_cuda_fault fault() { return get(args.fault, 1)[0]; }
    plec_cuda_plan_args args = {};

  private:
    template <class T> T *array(size_t n) {
        return static_cast<T *>(cuda_->poisoned(n * sizeof(T)));
    }
    CudaDevice *cuda_;
    Case case_;
};

bool same_tiles(const std::vector<plec_cuda_tile> &a, const std::vector<plec_cuda_tile> &b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const plec_cuda_tile &x, const plec_cuda_tile &y) {
                          return x.expert == y.expert && x.first_row == y.first_row &&
                                 x.n_rows == y.n_rows;
                      });
}

void expect_equal(CudaDevice *cuda, const Case &c) {
    SCOPED_TRACE("T " + std::to_string(c.n_tokens) + " k " + std::to_string(c.n_slots) + " E " +
                 std::to_string(c.n_entries));
    HostPlan want = plan_on_host(c);
    DevicePlan got(cuda, c);
    got.run();
    const plec_cuda_plan &plan = got.args.plan;
    size_t n_rows = want.row_pair.size();
    EXPECT_EQ(got.fault().code, unsigned(PLEC_CUDA_NO_FAULT));
    EXPECT_EQ(got.get(plan.first, c.n_entries + 1), want.first);
    EXPECT_EQ(got.get(plan.row_pair, n_rows), want.row_pair);
    EXPECT_EQ(got.get(plan.row_token, n_rows), want.row_token);
    EXPECT_EQ(got.get(plan.pair_row, want.pair_row.size()), want.pair_row);
    EXPECT_EQ(got.get(plan.left, c.n_entries), want.left);
    EXPECT_EQ(got.get(plan.n_left, 1)[0], want.n_left);
    std::vector<uint32_t> counts = got.get(plan.counts, PLEC_CUDA_LISTS);
    for (size_t i = 0; i < PLEC_CUDA_LISTS; i++)
        EXPECT_EQ(counts[i], i < want.tiles.size() ? want.tiles[i].size() : 0);
    for (size_t i = 0; i < want.tiles.size(); i++) {
        EXPECT_TRUE(same_tiles(got.get(plan.tiles[i], want.tiles[i].size()), want.tiles[i]));
        EXPECT_EQ(got.get(plan.first_tile[i], c.n_entries + 1), want.first_tile[i]);
        EXPECT_LE(want.tiles[i].size(), plec_cuda_max_tiles(size_t(c.n_tokens) * c.n_slots,
                                                            c.n_entries, c.lists[i].width));
    }
}

Ids random_ids(uint32_t n_tokens, uint32_t n_slots, uint32_t n_entries, uint32_t seed) {
    Random random(seed);
    Ids ids;
    for (uint32_t i = 0; i < n_tokens * n_slots; i++)
        ids.push_back(static_cast<int32_t>(random.below(n_entries)));
    return ids;
}

const uint32_t expert_counts[] = {1,  2,   3,   5,   7,   8,   31,  32,  33,  40,  60,
                                  64, 127, 128, 129, 160, 256, 257, 384, 512, 896, 1024};

class Plan : public testing::Test {
  protected:
    CudaDevice cuda_;
};

TEST_F(Plan, EqualsTheHostsForEveryExpertCountAndTopK) {
    for (uint32_t n_entries : expert_counts)
        for (uint32_t n_slots : {1, 2, 4, 8, 16, 64})
            if (n_slots <= n_entries)
                expect_equal(&cuda_, {9, n_slots, n_entries, random_ids(9, n_slots, n_entries, 1)});
}

TEST_F(Plan, EqualsTheHostsOverChunks) {
    expect_equal(&cuda_, {130, 8, 128, random_ids(130, 8, 128, 2)});
    expect_equal(&cuda_, {512, 4, 33, random_ids(512, 4, 33, 3)});
    expect_equal(&cuda_, {511, 1, 1, random_ids(511, 1, 1, 4)});
    expect_equal(&cuda_, {257, 2, 1024, random_ids(257, 2, 1024, 5)});
}

TEST_F(Plan, EqualsTheHostsOverBlocks) {
    ASSERT_EQ(plec_cuda_plan_blocks(4096), 1u);
    ASSERT_EQ(plec_cuda_plan_blocks(4097), 3u);
    expect_equal(&cuda_, {1024, 4, 33, random_ids(1024, 4, 33, 13)});
    expect_equal(&cuda_, {1025, 4, 33, random_ids(1025, 4, 33, 14)});
    expect_equal(&cuda_, {1537, 4, 600, random_ids(1537, 4, 600, 15)});
    expect_equal(&cuda_, {4099, 1, 1024, random_ids(4099, 1, 1024, 16)});
    expect_equal(&cuda_, {700, 8, 8, {}});
    expect_equal(&cuda_, {1200, 4, 64, Ids(4800, 5)});
    Case c = {1100, 4, 20, random_ids(1100, 4, 40, 17)};
    c.drop = true;
    expect_equal(&cuda_, c);
    c.drop = false, c.ids.assign(4400, 3), c.ids[4399] = 20;
    DevicePlan plan(&cuda_, c);
    plan.run();
    EXPECT_EQ(plan.fault().code, unsigned(PLEC_CUDA_BAD_EXPERT_ID));
    EXPECT_EQ(plan.fault().a, 4399u);
    for (uint32_t n : plan.get(plan.args.plan.counts, PLEC_CUDA_LISTS))
        EXPECT_EQ(n, 0u);
}

TEST_F(Plan, EqualsTheHostsWhenRoutingIsSkewed) {
    Ids ids = random_ids(300, 4, 64, 6);
    for (size_t i = 0; i < ids.size(); i++)
        if (i % 8 != 0) ids[i] = ids[i] % 3;
    expect_equal(&cuda_, {300, 4, 64, ids});
}

TEST_F(Plan, GivesAllRowsToOneExpert) {
    for (int32_t hot : {0, 30, 63})
        expect_equal(&cuda_, {150, 4, 64, Ids(600, hot)});
}

TEST_F(Plan, GivesEveryEntryItsSlotWithoutIds) {
    expect_equal(&cuda_, {70, 3, 3, {}});
    expect_equal(&cuda_, {1, 1, 1, {}});
}

TEST_F(Plan, IsEmptyWithoutPairs) {
    expect_equal(&cuda_, {0, 4, 17, {}});
}

TEST_F(Plan, DropsIdsOfOtherShards) {
    Ids ids = random_ids(100, 4, 48, 7);
    for (int32_t &id : ids)
        id -= 16; /* -16 to 31: half belong to 32 entries */
    Case c = {100, 4, 20, ids};
    c.drop = true;
    expect_equal(&cuda_, c);
    c.ids.assign(400, -1);
    expect_equal(&cuda_, c);
    c.ids.assign(400, INT32_MIN);
    expect_equal(&cuda_, c);
}

TEST_F(Plan, KeepsATokensDuplicates) {
    expect_equal(&cuda_, {3, 4, 8, {1, 1, 1, 1, 7, 0, 7, 0, 5, 5, 5, 2}});
}

TEST_F(Plan, CutsByOneClassAndByNine) {
    Ids ids = random_ids(60, 4, 7, 8);
    expect_equal(&cuda_, {60, 4, 7, ids, {{1, UINT32_MAX, 8}}});
    std::vector<plec_cuda_class> nine;
    for (uint32_t width = 1; width <= 9; width++)
        nine.push_back({width, UINT32_MAX - width, width});
    expect_equal(&cuda_, {60, 4, 7, ids, nine});
}

TEST_F(Plan, FaultsOnABadIdAndIsThenEmpty) {
    for (int32_t bad : {-1, 8, INT32_MAX, INT32_MIN}) {
        Case c = {40, 2, 8, random_ids(40, 2, 8, 9)};
        c.ids[37] = bad;
        DevicePlan plan(&cuda_, c);
        plan.run();
        EXPECT_EQ(plan.fault().code, unsigned(PLEC_CUDA_BAD_EXPERT_ID));
        EXPECT_EQ(plan.fault().a, 37u);
        EXPECT_EQ(plan.fault().b, bad);
        for (uint32_t n : plan.get(plan.args.plan.counts, PLEC_CUDA_LISTS))
            EXPECT_EQ(n, 0u);
        EXPECT_EQ(plan.get(plan.args.plan.n_left, 1)[0], 0u);
    }
}

TEST_F(Plan, IsEmptyAfterAnEarlierFault) {
    Case c = {4, 2, 8, random_ids(4, 2, 8, 10)};
    DevicePlan plan(&cuda_, c);
    plec_cuda_fault earlier = {PLEC_CUDA_PART_TWICE, 3, 0, 0};
    cuda_.copy(plan.args.fault, &earlier, sizeof earlier);
    plan.run();
    EXPECT_EQ(plan.fault().code, unsigned(PLEC_CUDA_PART_TWICE));
    EXPECT_EQ(plan.get(plan.args.plan.counts, 1)[0], 0u);
}

} // namespace
