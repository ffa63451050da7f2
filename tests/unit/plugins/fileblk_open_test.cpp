// SPDX-License-Identifier: Apache-2.0
// What fileblk opens, and what it refuses and why.
#include <boost/test/unit_test.hpp>

#include "fileblk_fixture.hpp"

#include <verbena/core/net/net.hpp>

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

BOOST_AUTO_TEST_SUITE(fileblk_open_test)

using namespace suite;
using fileblk::direct_mode;

namespace {

struct place {
    place() { options.path = (directory.path() / "disk").string(); }
    /// The errno and the text of why it can't be opened; 0 if it can.
    int open()
    {
        try {
            opened = fileblk::open_disk_file(options, before_lock);
            return 0;
        } catch (const fileblk::open_failure& e) {
            text = e.what();
            return e.errno_value();
        }
    }
    void make(std::size_t size) const { std::ofstream(options.path) << std::string(size, 'x'); }
    bool says(const char* words) const { return text.find(words) != text.npos; }

    temporary_directory directory{"/var/tmp"};
    fileblk::fileblk_options options;
    fileblk::disk_file opened;
    std::string text;
    std::function<void()> before_lock; ///< what others do then
};

} // namespace

BOOST_AUTO_TEST_CASE(a_file_is_created_once_and_never_changed)
{
    place p;
    BOOST_TEST(p.open() == ENOENT);
    BOOST_TEST(p.says("size=10G"), p.text);
    p.options.size = 1 << 20;
    p.options.read_only = true;
    BOOST_TEST(p.open() == ENOENT);
    BOOST_TEST(!std::filesystem::exists(p.options.path));
    p.options.read_only = false;
    BOOST_TEST(p.open() == 0);
    BOOST_TEST(p.opened.created);
    struct stat st{};
    BOOST_REQUIRE(::stat(p.options.path.c_str(), &st) == 0);
    BOOST_TEST(st.st_size == 1 << 20);
    BOOST_TEST((st.st_mode & 07777) == 0600u);
    BOOST_TEST(st.st_blocks < 64);
    p.opened = {};
    BOOST_TEST(p.open() == 0); // of the same size
    BOOST_TEST(!p.opened.created);
    p.opened = {};
    p.options.size = 1 << 19;
    BOOST_TEST(p.open() == EINVAL);
    BOOST_TEST(p.says("leave size= out"), p.text);
    BOOST_REQUIRE(::stat(p.options.path.c_str(), &st) == 0);
    BOOST_TEST(st.st_size == 1 << 20);
}

// It would be in the way when the size is put right, too.
BOOST_AUTO_TEST_CASE(a_file_that_was_created_for_nothing_is_gone)
{
    place p;
    const temporary_directory memory{"/dev/shm"};
    p.options.path = (memory.path() / "disk").string();
    p.options.size = 1 << 20;
    p.options.direct = direct_mode::on;
    BOOST_TEST(p.open() == EINVAL);
    BOOST_TEST(p.says("it lies in memory"), p.text);
    BOOST_TEST(!std::filesystem::exists(p.options.path));
    p.options.direct = direct_mode::off;
    BOOST_TEST(p.open() == 0);
    p.opened = {};
    // One that was there stays.
    p.options.direct = direct_mode::on;
    BOOST_TEST(p.open() == EINVAL);
    BOOST_TEST(std::filesystem::file_size(p.options.path) == 1u << 20);
}

// Two that start at once: whoever has the lock may serve it, or have written to it.
BOOST_AUTO_TEST_CASE(a_file_that_somebody_else_has_locked_stays)
{
    place loser;
    loser.options.size = 1 << 20;
    net::unique_fd winner;
    loser.before_lock = [&] {
        winner.reset(::open(loser.options.path.c_str(), O_RDWR | O_CLOEXEC));
        struct flock all{};
        all.l_type = F_WRLCK;
        BOOST_TEST_REQUIRE(::fcntl(winner.get(), F_OFD_SETLK, &all) == 0);
        BOOST_TEST(::write(winner.get(), "served", 6) == 6);
    };
    BOOST_TEST(loser.open() == EBUSY);
    BOOST_TEST(loser.says("is locked by"), loser.text);
    BOOST_REQUIRE(std::filesystem::exists(loser.options.path));
    BOOST_TEST(std::filesystem::file_size(loser.options.path) == 6u); // its size is the other's affair, too
}

BOOST_AUTO_TEST_CASE(a_file_that_was_created_is_locked_before_others_see_its_size)
{
    place first;
    first.options.size = 1 << 20;
    place second;
    second.options = first.options;
    BOOST_TEST(first.open() == 0);
    BOOST_TEST(second.open() == EBUSY);
    BOOST_TEST(std::filesystem::file_size(first.options.path) == 1u << 20);
}

BOOST_AUTO_TEST_CASE(a_file_in_the_place_of_the_one_that_was_created_stays)
{
    place p;
    const temporary_directory memory{"/dev/shm"};
    p.options.path = (memory.path() / "disk").string();
    p.options.size = 1 << 20;
    p.options.direct = direct_mode::on;
    p.before_lock = [&] {
        std::filesystem::rename(p.options.path, p.options.path + ".away");
        std::ofstream(p.options.path) << "another's";
    };
    BOOST_TEST(p.open() == EINVAL);
    BOOST_TEST(p.says("it lies in memory"), p.text);
    BOOST_REQUIRE(std::filesystem::exists(p.options.path));
    BOOST_TEST(std::filesystem::file_size(p.options.path) == 9u);
}

// By who created it, had the lock, and could not serve it.
BOOST_AUTO_TEST_CASE(a_file_that_goes_before_it_is_locked_is_not_served)
{
    for (const bool again : {false, true}) {
        place p;
        p.make(4096);
        p.before_lock = [&] {
            std::filesystem::rename(p.options.path,
                                    p.options.path + ".away"); // so that its number is not used again
            if (again)
                p.make(4096);
        };
        BOOST_TEST(p.open() == ESTALE);
        BOOST_TEST(p.says("start again"), p.text);
        p.before_lock = {};
        BOOST_TEST(p.open() == (again ? 0 : ENOENT));
    }
}

// Clients take it for the promise that nothing was lost.
BOOST_AUTO_TEST_CASE(a_run_is_that_of_a_file_and_of_its_host)
{
    place p;
    p.options.size = 1 << 20;
    BOOST_REQUIRE(p.open() == 0);
    const std::uint64_t run = p.opened.run;
    BOOST_TEST(run != 0u);
    p.opened = {};
    BOOST_REQUIRE(p.open() == 0); // as by the next process
    BOOST_TEST(p.opened.run == run);
    const int fd = p.opened.keeper.get();
    BOOST_TEST(fileblk::run_of(fd, false, "this boot") == fileblk::run_of(fd, false, "this boot"));
    BOOST_TEST(fileblk::run_of(fd, false, "this boot") != fileblk::run_of(fd, false, "the next"));
    BOOST_TEST(fileblk::run_of(fd, false, "") == 0u);
    BOOST_TEST(fileblk::run_of(fd, true, "this boot") == 0u); // it has no number of a disk

    place other;
    other.options.size = 1 << 20;
    BOOST_REQUIRE(other.open() == 0);
    BOOST_TEST(other.opened.run != run);
    // A new file in its place, perhaps under the same inode.
    p.opened = {};
    BOOST_REQUIRE(std::filesystem::remove(p.options.path));
    BOOST_REQUIRE(p.open() == 0);
    BOOST_TEST(p.opened.run != run);
}

BOOST_AUTO_TEST_CASE(a_link_that_leads_to_nothing_creates_nothing)
{
    place p;
    BOOST_REQUIRE(::symlink("elsewhere", p.options.path.c_str()) == 0);
    p.options.size = 1 << 20;
    BOOST_TEST(p.open() == EEXIST);
    BOOST_TEST(!std::filesystem::exists(p.directory.path() / "elsewhere"));
    std::ofstream(p.directory.path() / "elsewhere") << std::string(4096, 'x');
    p.options.size = 0;
    BOOST_TEST(p.open() == 0);
    BOOST_TEST(p.opened.size == 4096u);
}

BOOST_AUTO_TEST_CASE(what_is_no_whole_block_is_not_served)
{
    place p;
    p.make(4096 + 512 + 5);
    BOOST_TEST(p.open() == 0);
    BOOST_TEST(p.opened.size == 4608u);
    BOOST_TEST(p.opened.unserved == 5u);
    p.opened = {};
    p.options.block_size = 4096;
    BOOST_TEST(p.open() == 0);
    BOOST_TEST(p.opened.size == 4096u);
    BOOST_TEST(p.opened.unserved == 517u);
    p.opened = {};
    p.make(511);
    BOOST_TEST(p.open() == EINVAL);
    BOOST_TEST(p.says("no whole block (511 bytes): make it larger, as by truncate -s 10G, or remove it and"),
               p.text);
    BOOST_TEST(!p.says("lsblk"), p.text); // it is no disk
    p.make(0);
    BOOST_TEST(p.open() == EINVAL);
    BOOST_TEST(p.says("no whole block (0 bytes): make it larger"), p.text);
    p.options.block_size = 1000;
    BOOST_TEST(p.open() == EINVAL);
    BOOST_TEST(p.says("block_size=512, 1024, 2048 or 4096"), p.text);
}

// Nothing else is opened at all, since that may wait or do something.
BOOST_AUTO_TEST_CASE(only_files_and_block_devices_are_opened)
{
    place p;
    const auto refuses = [&p](const std::string& path, int error, const char* words) {
        p.options.path = path;
        BOOST_TEST(p.open() == error, path);
        BOOST_TEST(p.says(words), p.text);
    };
    refuses(p.directory.path(), EISDIR, "is a folder");
    refuses("/dev/null", EINVAL, "is a character device");
    const std::string pipe = p.directory.path() / "pipe";
    BOOST_REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    refuses(pipe, EINVAL, "is a FIFO");
    refuses(pipe + "/x", ENOTDIR, "can't be opened");
}

// It would lie in memory, and the disk that was meant would have another name.
BOOST_AUTO_TEST_CASE(no_file_is_made_among_devices)
{
    place p;
    const std::string name = "verbena-none-" + std::to_string(::getpid());
    const std::string link = p.options.path + ".devices";
    std::filesystem::create_directory_symlink("/dev", link);
    for (const std::string& folder :
         {std::string("/dev/"), std::string("//dev/"), std::string("/dev/shm/../"), link + "/"}) {
        p.options.path = folder + name;
        for (const std::uint64_t size : {0u, 4096u}) {
            p.options.size = size;
            BOOST_TEST(p.open() == ENOENT);
            BOOST_TEST(p.says("no file is made there"), p.text);
        }
        BOOST_TEST(!std::filesystem::remove(p.options.path));
    }
    std::filesystem::remove(link);
    for (const char* folder : {"/dev/shm/", "/dev/../dev/shm/"}) {
        p.options.path = folder + name;
        BOOST_TEST(p.open() == 0);
        BOOST_TEST(std::filesystem::remove(p.options.path));
    }
}

BOOST_AUTO_TEST_CASE(a_file_has_one_writer_or_many_readers)
{
    place first;
    first.make(4096);
    place second;
    second.options.path = first.options.path;
    BOOST_TEST(first.open() == 0);
    BOOST_TEST(second.open() == EBUSY);
    BOOST_TEST(second.says("locked by somebody else"), second.text);
    second.options.read_only = true;
    BOOST_TEST(second.open() == EBUSY);
    BOOST_TEST(second.says("who may write to it"), second.text);
    first.opened = {};
    BOOST_TEST(second.open() == 0);
    BOOST_TEST(first.open() == EBUSY);
    first.options.read_only = true;
    BOOST_TEST(first.open() == 0);
}

// A process that has a lock is named: the kernel tells it of locks of processes.
BOOST_AUTO_TEST_CASE(who_has_the_lock_is_named_where_the_kernel_tells)
{
    place p;
    p.make(4096);
    int pipes[2][2];
    BOOST_REQUIRE((::pipe(pipes[0]) == 0 && ::pipe(pipes[1]) == 0));
    const pid_t child = ::fork();
    if (child == 0) {
        const int fd = ::open(p.options.path.c_str(), O_RDWR | O_CLOEXEC);
        struct flock all{};
        all.l_type = F_WRLCK;
        char c = ::fcntl(fd, F_SETLK, &all) == 0 ? 'y' : 'n';
        (void)!::write(pipes[0][1], &c, 1);
        (void)!::read(pipes[1][0], &c, 1);
        ::_exit(0);
    }
    char c = 'n';
    BOOST_TEST(::read(pipes[0][0], &c, 1) == 1);
    BOOST_TEST(c == 'y');
    BOOST_TEST(p.open() == EBUSY);
    BOOST_TEST(p.says(("locked by process " + std::to_string(child)).c_str()), p.text);
    BOOST_TEST(::write(pipes[1][1], &c, 1) == 1);
    int status = 0;
    BOOST_TEST(::waitpid(child, &status, 0) == child);
    BOOST_TEST(p.open() == 0);
    for (const auto& both : pipes) {
        ::close(both[0]);
        ::close(both[1]);
    }
}

BOOST_AUTO_TEST_CASE(direct_is_chosen_refused_or_explained)
{
    place p;
    p.make(1 << 20);
    p.options.block_size = 4096;
    p.options.direct = direct_mode::on;
    BOOST_TEST(p.open() == 0, p.text);
    BOOST_TEST(p.opened.direct);
    BOOST_TEST((::fcntl(p.opened.io.get(), F_GETFL) & O_DIRECT) != 0);
    BOOST_TEST((::fcntl(p.opened.keeper.get(), F_GETFL) & O_DIRECT) == 0);
    p.opened = {};
    p.options.direct = direct_mode::off;
    BOOST_TEST(p.open() == 0);
    BOOST_TEST(!p.opened.direct);
    BOOST_TEST((::fcntl(p.opened.io.get(), F_GETFL) & O_DIRECT) == 0);
    place m;
    m.directory.path();
    const temporary_directory in_memory("/dev/shm");
    m.options.path = in_memory.path() / "disk";
    m.options.size = 1 << 20;
    BOOST_TEST(m.open() == 0);
    BOOST_TEST(m.opened.in_memory);
    BOOST_TEST(!m.opened.direct);
    m.opened = {};
    m.options.direct = direct_mode::on;
    BOOST_TEST(m.open() == EINVAL);
    BOOST_TEST(m.says("direct=on: it lies in memory"), m.text);
}

BOOST_AUTO_TEST_SUITE_END()
