// SPDX-License-Identifier: Apache-2.0
// The root of an export that is not mounted yet, is unmounted, or made anew.
#include <boost/test/unit_test.hpp>

#include "../../../plugins/posixfs/backend.hpp"
#include "daemon_in_child.hpp"
#include "needs_root.hpp"
#include "temporary_directory.hpp"

#include <verbena/core/log.hpp>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <sched.h>
#include <string>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

using namespace verbena::posixfs;

namespace {

using namespace suite;

std::mutex lines_mutex;
std::vector<std::string> lines; // of several threads

unsigned lines_with(const std::string& text)
{
    const std::lock_guard lock(lines_mutex);
    return unsigned(std::ranges::count_if(lines, [&](const auto& l) { return l.find(text) != l.npos; }));
}

/// A folder, in a mount namespace of its own, at which something may be mounted. The test looks: nobody else does.
struct place {
    place()
    {
        check(::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0,
              "a mount namespace of its own");
        root = directory.path() / "disk";
        check(::mkdir(root.c_str(), 0777) == 0 && ::mkdir(kept.c_str(), 0777) == 0, "folders");
        // What stays the same file system while it is not mounted at the root.
        check(::mount("none", kept.c_str(), "tmpfs", 0, "size=1m,mode=0777") == 0, "a file system");
        options.root = root;
        options.watch = true;
        set_log_capture(
            [](void*, std::string_view line) {
                const std::lock_guard lock(lines_mutex);
                lines.emplace_back(line);
            },
            nullptr);
    }
    ~place()
    {
        unmount();
        ::umount2(kept.c_str(), MNT_DETACH);
        set_log_capture(nullptr, nullptr);
    }
    void mount() const
    {
        check(::mount(kept.c_str(), root.c_str(), nullptr, MS_BIND, nullptr) == 0, "it is mounted");
    }
    void mount_another() const
    {
        check(::mount("none", root.c_str(), "tmpfs", 0, "size=1m,mode=0777") == 0, "another one is mounted");
    }
    void unmount() const { ::umount2(root.c_str(), MNT_DETACH); }
    bool is_empty_beneath() const
    {
        unmount();
        return std::filesystem::is_empty(root);
    }

    temporary_directory directory;
    std::filesystem::path root, kept = directory.path() / "kept";
    posixfs_options options;
};

struct watched : server {
    explicit watched(const posixfs_options& o) : server(o) {}
    // The thread of the process looks as well: what it finds first is the same.
    root_state look()
    {
        dynamic_cast<backend&>(*fs).look_at_root();
        shard->turn();
        return root_state_of(*fs);
    }
    int getattr(const handle& file)
    {
        const auto r = run(fs->getattr(me, file));
        return r ? 0 : r.error().errno_value();
    }
    int create(const char* name, handle* made = nullptr)
    {
        const auto r = run(fs->create(me, fs->root(), name, create_mode::guarded, {}, 0));
        if (r && made != nullptr)
            *made = r->made.handle;
        return r ? 0 : r.error().errno_value();
    }
    const request me = user(0);
};

} // namespace

BOOST_AUTO_TEST_CASE(a_look_tells_what_is_mounted)
{
    needs_root("to mount");
    in_child([] {
        const place p;
        const root_look beneath = look_at_root(p.root, p.root, false);
        check(beneath.failed == 0 && !beneath.is_mount && !beneath.is_mounted, "a folder is no mount");
        p.mount();
        const root_look now = look_at_root(p.root, p.root, false);
        check(now.failed == 0 && now.is_mount && now.is_mounted, "a mount is one");
        check(!now.is_same(beneath), "and another directory");
        check(now.is_same(look_at_root(p.root, p.root, true)), "which the kernel's cache knows, too");
        check(is_still_mounted(now.mount), "it is in the table");
        root_look later = beneath;
        check(beneath.born != 0 && later.is_same(beneath), "it was made at some time");
        ++later.born;
        check(!later.is_same(beneath), "what has its number and was made later is another one");
        const root_look inside = look_at_root(p.kept, p.directory.path(), false);
        check(inside.failed == 0 && !inside.is_mounted, "another folder is no mount point");
        p.unmount();
        check(!is_still_mounted(now.mount), "it is not any more");
        check(look_at_root(p.root / "none", "", false).failed == ENOENT, "nothing is there");
    });
}

BOOST_AUTO_TEST_CASE(what_is_not_mounted_yet_is_served_once_it_is)
{
    needs_root("to mount");
    in_child([] {
        place p;
        p.options.mountpoint = p.root;
        watched s(p.options);
        check(root_state_of(*s.fs) == root_state::down, "nothing is there");
        check(lines_with("nothing is mounted at") == 1, "which is said");
        check(s.getattr(s.fs->root()) == ENOMEDIUM, "its root");
        check(s.create("f") == ENOMEDIUM, "nobody makes a file");
        check(s.look() == root_state::down, "still");
        check(lines_with("nothing is mounted at") == 1, "once");
        p.mount();
        check(s.look() == root_state::up, "it has come");
        check(s.create("f") == 0, "a file");
        check(std::filesystem::exists(p.kept / "f"), "is made there");
        check(s.fs->info().file_space != 0, "its file system is known");
        check(p.is_empty_beneath(), "and nothing beneath");
    });
}

BOOST_AUTO_TEST_CASE(what_nobody_wants_does_not_take_what_is_mounted_later)
{
    needs_root("to mount");
    in_child([] {
        place p;
        p.options.mountpoint = p.root;
        watched w(p.options);
        check(w.look() == root_state::down, "nothing is mounted");
        leave_root_alone(*w.fs);
        p.mount();
        check(w.look() == root_state::down, "it is left alone");
        check(lines_with("an export is served") == 0, "and nobody is told that it is served");
        check(::umount2(p.root.c_str(), 0) == 0, "nothing keeps it");
    });
}

BOOST_AUTO_TEST_CASE(a_folder_in_what_is_not_mounted_yet_need_not_be_there)
{
    needs_root("to mount");
    in_child([] {
        place p;
        p.options.mountpoint = p.root;
        p.options.root = p.root / "inside";
        watched s(p.options);
        check(s.look() == root_state::down, "nothing is there");
        check(::mkdir((p.kept / "inside").c_str(), 0777) == 0, "a folder of the disk");
        p.mount();
        check(s.look() == root_state::up && s.create("f") == 0, "it is served");
        check(std::filesystem::exists(p.kept / "inside" / "f"), "with what is made in it");
    });
}

BOOST_AUTO_TEST_CASE(what_is_unmounted_waits_and_comes_back_with_its_handles)
{
    needs_root("to mount");
    for (const auto handles : {handle_mode::kernel, handle_mode::path_table})
        for (const bool asked : {true, false}) {
            in_child([&] {
                place p;
                if (asked)
                    p.options.mountpoint = p.root;
                p.options.handles = handles;
                p.mount();
                watched s(p.options);
                handle file;
                check(s.create("f", &file) == 0, "a file");
                const handle root = s.fs->root();
                const std::uint64_t verifier = s.fs->write_verifier();
                p.unmount();
                check(s.look() == root_state::down, "it has gone");
                check(lines_with("an export is not served") == 1, "which is said");
                check(s.look() == root_state::down && lines_with("an export is not served") == 1, "once");
                check(s.getattr(file) == ENOMEDIUM && s.getattr(root) == ENOMEDIUM, "clients wait");
                check(s.write(s.me, file) == ENOMEDIUM, "also to write");
                check(s.create("g") == ENOMEDIUM, "and to make files");
                check(std::filesystem::is_empty(p.root), "nothing is written beneath");
                check(s.fs->write_verifier() != verifier, "what was not stable is written again");
                p.mount();
                check(s.look() == root_state::up, "it is back");
                check(s.fs->root() == root && s.getattr(root) == 0, "with its root");
                check(s.getattr(file) == 0 && s.write(s.me, file) == 0, "and its files");
                check(s.create("g") == 0 && std::filesystem::exists(p.kept / "g"), "new ones are made there");
            });
        }
}

BOOST_AUTO_TEST_CASE(nothing_of_what_has_gone_stays_open)
{
    needs_root("to mount");
    in_child([] {
        place p;
        p.options.mountpoint = p.root;
        p.mount_another();
        watched s(p.options);
        handle file;
        check(s.create("f", &file) == 0 && s.write(s.me, file) == 0, "a file");
        const auto opened = s.run(s.fs->open(s.me, file, R_OK | W_OK, open_right::asked));
        check(opened.has_value(), "that somebody has open");
        struct stat st{};
        check(::stat(p.root.c_str(), &st) == 0, "its device");
        const auto open_of_it = [dev = st.st_dev] {
            unsigned count = 0;
            for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
                struct stat at{};
                count += ::stat(entry.path().c_str(), &at) == 0 && at.st_dev == dev ? 1 : 0;
            }
            return count;
        };
        check(open_of_it() != 0, "there are descriptors");
        p.unmount();
        check(s.look() == root_state::down, "it has gone");
        check(open_of_it() == 0, "and all of them with it");
    });
}

// Local processes may change a file from there on without breaking its lease.
BOOST_AUTO_TEST_CASE(leases_of_what_has_gone_are_asked_back)
{
    needs_root("to mount");
    in_child([] {
        place p;
        p.mount();
        std::ofstream(p.root / "f") << "data";
        watched s(p.options);
        const auto found = s.run(s.fs->lookup(s.me, s.fs->root(), "f"));
        check(found.has_value(), "a file");
        unsigned asked = 0;
        const auto taken = s.run(s.fs->lease(found->found.handle, [&] { ++asked; }));
        check(taken.has_value(), "a lease");
        check(asked == 0, "that nobody wants");
        p.unmount();
        s.look();
        s.shard->turn();
        check(asked == 1, "is wanted back");
    });
}

BOOST_AUTO_TEST_CASE(another_file_system_has_no_handle_of_the_one_before)
{
    needs_root("to mount");
    in_child([] {
        place p;
        p.mount();
        watched s(p.options);
        handle file;
        check(s.create("f", &file) == 0, "a file");
        const handle root = s.fs->root();
        p.unmount();
        p.mount_another();
        check(s.look() == root_state::up, "another one is served");
        check(lines_with("handles of the one before are stale") == 1, "which is said");
        check(s.getattr(file) == ESTALE && s.getattr(root) == ESTALE, "handles of the first one are stale");
        check(!(s.fs->root() == root), "its root is another one");
        check(s.fs->root().bytes()[0] != root.bytes()[0], "marked, as roots of two ext4 have one number");
        handle other;
        check(s.getattr(s.fs->root()) == 0 && s.create("f", &other) == 0, "it has files");
        check(s.getattr(other) == 0, "with handles");
        p.unmount();
        p.mount();
        check(s.look() == root_state::up, "the first one is back");
        check(s.getattr(other) == ESTALE, "handles of the other one are stale");
        check(s.fs->root() == root && s.getattr(root) == 0 && s.getattr(file) == 0, "its own are good again");
    });
}

BOOST_AUTO_TEST_CASE(a_root_that_is_made_anew_is_served)
{
    needs_root("to mount");
    in_child([] {
        place p;
        watched s(p.options);
        handle file;
        check(s.create("f", &file) == 0, "a file");
        const handle root = s.fs->root();
        std::filesystem::remove_all(p.root);
        check(s.look() == root_state::down, "it has gone");
        check(lines_with("No such file") == 1, "which is said");
        check(s.getattr(root) == ENOMEDIUM, "clients wait");
        check(::mkdir(p.root.c_str(), 0777) == 0, "it is made again");
        check(s.look() == root_state::up, "it is served");
        check(s.getattr(file) == ESTALE && s.getattr(root) == ESTALE, "handles of the first one are stale");
        check(s.create("g") == 0 && std::filesystem::exists(p.root / "g"), "a file of the new one");
        // Between two looks, and mostly with the number that the first one had.
        std::filesystem::remove_all(p.root);
        check(::mkdir(p.root.c_str(), 0777) == 0 && s.look() == root_state::up, "and once more");
        check(s.create("h") == 0 && std::filesystem::exists(p.root / "h"), "a file of that one");
    });
}

// Nobody asked for a mount point, but what was beneath was never served.
BOOST_AUTO_TEST_CASE(what_lay_beneath_is_not_served_in_its_place)
{
    needs_root("to mount");
    in_child([] {
        place p;
        check(::mkdir((p.root / "inside").c_str(), 0777) == 0 &&
                  ::mkdir((p.kept / "inside").c_str(), 0777) == 0,
              "two folders of one name");
        p.mount();
        p.options.root = p.root / "inside";
        watched s(p.options);
        check(s.create("f") == 0, "a file of the disk");
        p.unmount();
        check(s.look() == root_state::down && s.look() == root_state::down, "it has gone");
        check(lines_with("what lay beneath is not served") == 1, "which is said once");
        check(s.create("g") == ENOMEDIUM && std::filesystem::is_empty(p.root / "inside"),
              "nothing is written");
        p.mount();
        check(s.look() == root_state::up && s.create("g") == 0, "it is back");
    });
}

BOOST_AUTO_TEST_CASE(what_is_mounted_over_a_root_is_served)
{
    needs_root("to mount");
    in_child([] {
        place p;
        watched s(p.options);
        check(s.create("f") == 0, "the folder beneath is served, as nobody said otherwise");
        p.mount();
        check(s.look() == root_state::up, "a disk has come");
        check(s.create("g") == 0 && std::filesystem::exists(p.kept / "g"), "files are made there");
    });
}

// Descriptors of the process on that file system.
namespace {

std::size_t open_on(dev_t device)
{
    std::size_t n = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        struct stat st{};
        n += ::fstat(std::stoi(entry.path().filename()), &st) == 0 && st.st_dev == device;
    }
    return n;
}

} // namespace

BOOST_AUTO_TEST_CASE(nothing_keeps_what_is_gone_though_it_was_just_written)
{
    needs_root("to mount");
    in_child([] {
        place p;
        p.options.mountpoint = p.root;
        p.mount();
        watched s(p.options);
        handle file;
        check(s.create("f", &file) == 0, "a file is made");
        const auto opened = s.run(s.fs->open(s.me, file, W_OK, open_right::granted));
        check(opened.has_value() && s.write(s.me, file) == 0, "it is open, and written");
        struct stat st{};
        check(::stat(p.kept.c_str(), &st) == 0 && open_on(st.st_dev) > 0, "of which something is open");
        p.unmount();
        check(s.look() == root_state::down, "it has gone");
        check(open_on(st.st_dev) == 0, "nothing is open any more");
    });
}

BOOST_AUTO_TEST_CASE(a_look_without_descriptors_says_nothing)
{
    needs_root("to mount");
    in_child([] {
        place p;
        p.options.mountpoint = p.root;
        p.mount();
        watched s(p.options);
        rlimit before{};
        check(::getrlimit(RLIMIT_NOFILE, &before) == 0, "a limit");
        // Below that there are always some: the thread of the process, which looks as well, opens and closes others meanwhile.
        rlimit now = before;
        now.rlim_cur = 3;
        check(::setrlimit(RLIMIT_NOFILE, &now) == 0, "no descriptor is left");
        check(look_at_root(p.root, p.root, false).failed == EMFILE, "nobody can look");
        p.unmount();
        check(s.look() == root_state::up, "so nothing is known");
        check(::setrlimit(RLIMIT_NOFILE, &before) == 0, "there are some again");
        check(s.look() == root_state::down, "it has gone");
    });
}

namespace {

struct hung_lane final : blocking_pool::job {
    void execute() noexcept override { may_go.wait(false); }
    void deliver() noexcept override {}
    std::atomic<bool> may_go{false};
};

} // namespace

BOOST_AUTO_TEST_CASE(a_look_that_hangs_is_told_and_holds_nobody)
{
    needs_root("to mount");
    in_child([] {
        place p;
        p.options.mountpoint = p.root;
        p.mount();
        blocking_pool lane(1);
        struct nobody final : watched_root::owner {
            void stand_down() noexcept override { ++downs; }
            void stand_up(std::unique_ptr<standing_root>) override {}
            int downs = 0;
        } owner;
        auto opened = open_root(p.options);
        check(opened.has_value(), "it opens");
        const auto root = std::make_shared<watched_root>(p.options, lane, owner, **opened);
        hung_lane hung;
        check(lane.submit(hung), "the lane hangs");
        p.unmount();
        const auto now = watched_root::clock::time_point();
        root->look(now);
        root->look(now + watched_root::patience - std::chrono::nanoseconds(1));
        check(root->state() == root_state::up, "for a moment nothing is known");
        root->look(now + watched_root::patience);
        root->look(now + 2 * watched_root::patience);
        check(root->state() == root_state::no_answer, "then it does not answer");
        check(lines_with("does not answer") == 1, "which is said once");
        hung.may_go = true;
        hung.may_go.notify_all();
        lane.finish();
        check(root->state() == root_state::down && owner.downs == 1, "when it answers it has gone");
        root->leave();
        p.mount();
        root->settle();
        check(root->state() == root_state::down, "nobody is called who has left");
    });
}
