// SPDX-License-Identifier: Apache-2.0
// The path table: where a handle leads after files went, came and moved.
#include <boost/test/unit_test.hpp>

#include "../../../plugins/posixfs/path_table.hpp"
#include "temporary_directory.hpp"

#include <cerrno>
#include <fcntl.h>
#include <fstream>
#include <linux/openat2.h>

using namespace verbena;
using namespace verbena::posixfs;

namespace {

/// A table over a directory of its own.
struct tree {
    int open(const std::string& path) const
    {
        return ::open((directory.path() / path).c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC);
    }
    static struct stat stat_of(int fd)
    {
        struct stat st{};
        BOOST_REQUIRE(::fstat(fd, &st) == 0);
        return st;
    }
    void file(const std::string& path) const { std::ofstream(directory.path() / path) << path; }
    void remove(const std::string& path) const { std::filesystem::remove(directory.path() / path); }
    /// As a LOOKUP of `name`, which stands at `path`.
    storage::handle see(const storage::handle& in, const std::string& name, const std::string& path)
    {
        const posixfs::unique_fd fd(open(path));
        BOOST_REQUIRE(fd);
        return table.insert(fd.get(), stat_of(fd.get()), in, name);
    }
    storage::handle see(const std::string& name) { return see(table.root_handle(), name, name); }
    /// The inode that a handle leads to, or -errno.
    std::int64_t lead(const storage::handle& h)
    {
        auto opened = table.open(h);
        return opened ? std::int64_t(stat_of(opened->get()).st_ino) : -opened.error().errno_value();
    }
    std::int64_t inode(const std::string& path) const
    {
        const posixfs::unique_fd fd(open(path));
        return std::int64_t(stat_of(fd.get()).st_ino);
    }

    suite::temporary_directory directory;
    posixfs::unique_fd root{open("")};
    path_table table{root.get(), stat_of(root.get()), 100, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
};

} // namespace

BOOST_FIXTURE_TEST_CASE(dots_move_nothing, tree)
{
    std::filesystem::create_directories(directory.path() / "a" / "b" / "c");
    file("a/f");
    const auto a = see("a");
    const auto b = see(a, "b", "a/b");
    const auto c = see(b, "c", "a/b/c");
    const auto f = see(a, "f", "a/f");
    BOOST_TEST((see(b, "..", "a") == a));
    BOOST_TEST((see(c, "..", "a/b") == b));
    BOOST_TEST((see(b, ".", "a/b") == b));
    BOOST_TEST((see(a, "..", ".") == table.root_handle()));
    for (const auto& [handle, path] :
         {std::pair(a, "a"), std::pair(b, "a/b"), std::pair(c, "a/b/c"), std::pair(f, "a/f")})
        BOOST_TEST(lead(handle) == inode(path));
}

BOOST_FIXTURE_TEST_CASE(a_number_that_is_given_away_again_is_another_file, tree)
{
    // ext4 gives a new file the number of the last one removed.
    for (int i = 0; i < 200; ++i) {
        file("old");
        const auto old = see("old");
        BOOST_TEST_REQUIRE(lead(old) == inode("old"));
        remove("old");
        file("new");
        std::filesystem::rename(directory.path() / "new", directory.path() / "old");
        const auto now = see("old");
        BOOST_TEST(!(now == old));
        BOOST_TEST(lead(old) == -ESTALE);
        BOOST_TEST(lead(now) == inode("old"));
    }
    // Wherever this runs: the same device and number, and another file.
    file("one");
    file("other");
    const posixfs::unique_fd one(open("one"));
    const posixfs::unique_fd other(open("other"));
    const auto forged = table.insert(other.get(), stat_of(one.get()), table.root_handle(), "one");
    BOOST_TEST(!(forged == see("one")));
    BOOST_TEST(lead(forged) == -ESTALE);
}

BOOST_FIXTURE_TEST_CASE(a_file_with_several_names_is_found_by_those_that_are_left, tree)
{
    file("h1");
    const auto h = see("h1");
    const auto number = inode("h1");
    for (const char* name : {"h2", "h3"}) {
        std::filesystem::create_hard_link(directory.path() / "h1", directory.path() / name);
        BOOST_TEST((see(name) == h));
    }
    remove("h3");
    BOOST_TEST(lead(h) == number);
    remove("h2");
    BOOST_TEST(lead(h) == number);
    // Another file at the last name of many is not taken for it.
    for (int i = 0; i < 10; ++i) {
        const std::string name = "n" + std::to_string(i);
        std::filesystem::create_hard_link(directory.path() / "h1", directory.path() / name);
        BOOST_TEST((see(name) == h));
    }
    file("stranger");
    std::filesystem::rename(directory.path() / "stranger", directory.path() / "n9");
    BOOST_TEST(lead(h) == number);
    // A name seen again is not remembered twice: of the last four, one is left.
    for (int i = 0; i < 5; ++i)
        see("n8");
    for (const char* name : {"n8", "n7"})
        remove(name);
    BOOST_TEST(lead(h) == number);
    BOOST_TEST(table.size() == 1u);
}

// The file lives, whatever became of its other names.
BOOST_FIXTURE_TEST_CASE(a_name_that_cannot_be_looked_at_is_not_one_that_is_gone, tree)
{
    file("f");
    const posixfs::unique_fd f(open("f"));
    storage::handle in = table.root_handle();
    const auto h = see("f");
    // Deeper than the kernel takes paths.
    const std::string name(250, 'd');
    posixfs::unique_fd at(open(""));
    for (int i = 0; i < 20; ++i) {
        BOOST_REQUIRE(::mkdirat(at.get(), name.c_str(), 0700) == 0);
        at.reset(::openat(at.get(), name.c_str(), O_PATH | O_CLOEXEC));
        BOOST_REQUIRE(at);
        in = table.insert(at.get(), stat_of(at.get()), in, name);
    }
    BOOST_REQUIRE(::linkat(root.get(), "f", at.get(), "g", 0) == 0);
    BOOST_TEST((table.insert(f.get(), stat_of(f.get()), in, "g") == h));
    remove("f");
    BOOST_TEST(lead(h) == -ENAMETOOLONG);
}

BOOST_FIXTURE_TEST_CASE(handles_leave_a_protocol_room, tree)
{
    file("f");
    BOOST_TEST(see("f").bytes().size() <= 21u);
}
