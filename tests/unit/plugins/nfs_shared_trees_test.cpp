// SPDX-License-Identifier: Apache-2.0
// What is said at the start of exports of one tree that differ in what must be one for all of them.
#include "../../../plugins/nfs/shared_trees.hpp"

#include <verbena/core/reactor/blocking.hpp>
#include <verbena/plugins/memfs.hpp>

#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

BOOST_AUTO_TEST_SUITE(nfs_shared_trees_test)

using namespace verbena;
using namespace verbena::nfs;

namespace {

struct fixture {
    /// `locks`: 1 or 0; else the back end has no such setting.
    void add(std::string pseudo, storage::file_backend& backend, bool local_writers, int locks)
    {
        export_options made;
        made.pseudo = std::move(pseudo);
        made.backend = &backend;
        made.local_writers = local_writers;
        BOOST_REQUIRE(table.add(std::move(made)));
        export_config& config = configs.emplace_back();
        if (locks >= 0)
            config.values.set("local_locks", {locks == 1});
    }
    std::string said() const { return warning_of_shared_tree(table.now(), configs, configs.size() - 1); }
    bool says(std::string_view text) const { return said().find(text) != std::string::npos; }

    blocking_pool lane{1};
    std::unique_ptr<storage::file_backend> files = std::move(*memfs::open_memfs({}, lane));
    std::unique_ptr<storage::file_backend> others = std::move(*memfs::open_memfs({}, lane));
    export_table table;
    std::vector<export_config> configs;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(exports_that_agree_or_are_of_other_trees_are_not_warned_of, fixture)
{
    add("/a", *files, true, 1);
    BOOST_TEST(said() == "");
    add("/b", *others, false, 0);
    BOOST_TEST(said() == "");
    add("/c", *files, true, 1);
    BOOST_TEST(said() == "");
    add("/d", *others, false, -1); // which is as without
    BOOST_TEST(said() == "");
}

BOOST_FIXTURE_TEST_CASE(what_differs_is_named_with_the_other_export, fixture)
{
    add("/a", *files, true, 1);
    add("/b", *files, false, 1);
    BOOST_TEST(says("local_writers is not that of /a, which is of the same tree"));
    BOOST_TEST(!says("local_locks"));
    add("/c", *files, true, 0);
    BOOST_TEST(says("local_locks is not that of /a, which is of the same tree"));
    BOOST_TEST(!says("local_writers"));
    add("/d", *files, false, 0);
    BOOST_TEST((says("local_locks") && says("local_writers")));
    BOOST_TEST(says("give both the same"));
}

BOOST_AUTO_TEST_SUITE_END()
