// SPDX-License-Identifier: Apache-2.0
// Whose calls every back end must refuse. These need a back end that tells users apart: memfs always, posixfs as root;
// where it does not they fail, as nothing has been tested.
#pragma once

#include "backend_fixture.hpp"

namespace suite {

struct fixture_with_users : fixture {
    fixture_with_users()
    {
        BOOST_REQUIRE_MESSAGE(tells_users_apart(),
                              "this back end tells users apart as root only: run as root");
    }
};

BOOST_FIXTURE_TEST_SUITE(rights_of_users, fixture_with_users)

BOOST_AUTO_TEST_CASE(permissions_bind)
{
    const handle root = fs->root();
    const request alice = user(1000, 1000);
    const request bob = user(1001, 1001);
    const request in_group = user(1002, 1002, {7, 1000, 99});
    const handle mine = make_file("root_only", "secret", 0600);
    std::byte out[8];
    BOOST_TEST(fails(fs->read(alice, mine, 0, out)) == EACCES);
    BOOST_TEST(fails(write(alice, mine, 0, "x")) == EACCES);
    BOOST_TEST(must(fs->access(alice, mine, R_OK | W_OK | X_OK)) == 0u);
    BOOST_TEST(get(me, mine) == "secret");
    // ... also when the right descriptor is open already, for somebody else.
    BOOST_TEST(fails(fs->read(alice, mine, 0, out)) == EACCES);

    const handle f = make_file(alice, root, "f", "alice", 0640);
    BOOST_TEST(stat(f).uid == 1000u);
    BOOST_TEST(stat(f).gid == 1000u);
    BOOST_TEST(get(in_group, f) == "alice");
    BOOST_TEST(fails(write(in_group, f, 0, "x")) == EACCES);
    BOOST_TEST(fails(fs->read(bob, f, 0, out)) == EACCES);
    BOOST_TEST(must(fs->access(in_group, f, R_OK | W_OK)) == unsigned(R_OK));
    BOOST_TEST(must(fs->access(alice, f, R_OK | W_OK | X_OK)) == unsigned(R_OK | W_OK));
    // A change of mode binds at once, descriptors or not.
    set_attributes set;
    set.mode = 0600;
    must(fs->setattr(alice, f, set, std::nullopt));
    BOOST_TEST(fails(fs->read(in_group, f, 0, out)) == EACCES);
    set.mode = 0666;
    must(fs->setattr(alice, f, set, std::nullopt));
    BOOST_TEST(must(write(bob, f, 0, "B")).count == 1u);
    set.mode = 0644;
    must(fs->setattr(alice, f, set, std::nullopt));
    BOOST_TEST(fails(write(bob, f, 0, "B")) == EACCES);
    BOOST_TEST(get(bob, f) == "Blice");
}

// Lists that several callers share, as a server has them that looks groups up.
BOOST_AUTO_TEST_CASE(more_groups_than_a_call_can_name)
{
    std::vector<std::uint32_t> many;
    for (std::uint32_t g = 2001; g <= 2200; ++g)
        many.push_back(g);
    request in_many = user(1002, 1002);
    in_many.who.share_groups(std::make_shared<const std::vector<std::uint32_t>>(many));
    const handle f = make_file(user(1000, 2200), fs->root(), "f", "alice", 0640);
    const handle g = make_file(user(1000, 3000), fs->root(), "g", "alice", 0640);
    std::byte out[8];
    BOOST_TEST(get(in_many, f) == "alice");
    BOOST_TEST(fails(fs->read(in_many, g, 0, out)) == EACCES);
    // Another caller of the same uid, who has left the last one.
    many.pop_back();
    request in_fewer = user(1002, 1002);
    in_fewer.who.share_groups(std::make_shared<const std::vector<std::uint32_t>>(many));
    BOOST_TEST(fails(fs->read(in_fewer, f, 0, out)) == EACCES);
    const auto opened = must(fs->open(in_many, f, R_OK, open_right::asked));
    BOOST_TEST(opened.file->lets(in_many.who, R_OK));
    BOOST_TEST(!opened.file->lets(in_fewer.who, R_OK));
    BOOST_TEST(get(in_many, f) == "alice");
}

BOOST_AUTO_TEST_CASE(execution_is_for_whom_the_mode_says)
{
    const request alice = user(1000, 1000);
    const request bob = user(1001, 1001);
    const handle f = make_file(alice, fs->root(), "f", "alice", 0644);
    const handle d = make_directory(fs->root(), "d", 0700);
    constexpr unsigned all = R_OK | W_OK | X_OK;
    struct {
        std::uint32_t mode;
        unsigned alice, bob, root;
    } const rights[] = {
        {0644, R_OK | W_OK, R_OK, R_OK | W_OK}, // not even root, where nobody may
        {0600, R_OK | W_OK, 0, R_OK | W_OK},    //
        {0744, all, R_OK, all},
        {0645, R_OK | W_OK, R_OK | X_OK, all},
        {0614, R_OK | W_OK, R_OK, all},
        {0100, X_OK, 0, all},
        {0, 0, 0, R_OK | W_OK},
    };
    for (const auto& of : rights) {
        set_attributes set;
        set.mode = of.mode;
        must(fs->setattr(alice, f, set, std::nullopt));
        BOOST_TEST_CONTEXT("mode " << std::oct << of.mode)
        {
            BOOST_TEST(must(fs->access(alice, f, all)) == of.alice);
            BOOST_TEST(must(fs->access(bob, f, all)) == of.bob);
            BOOST_TEST(must(fs->access(me, f, all)) == of.root);
            BOOST_TEST(must(fs->access(bob, f, X_OK)) == (of.bob & X_OK));
        }
    }
    // A directory is searched by root whatever its mode says.
    set_attributes none;
    none.mode = 0;
    must(fs->setattr(me, d, none, std::nullopt));
    BOOST_TEST(must(fs->access(me, d, all)) == all);
    BOOST_TEST(must(fs->access(alice, d, all)) == 0u);
}

BOOST_AUTO_TEST_CASE(directories_bind)
{
    const request alice = user(1000, 1000);
    const handle d = make_directory(fs->root(), "d", 0700);
    make_file(me, d, "f", "x", 0666);
    listing l;
    BOOST_TEST(fails(fs->lookup(alice, d, "f")) == EACCES);
    BOOST_TEST(fails(fs->readdir(alice, d, 0, 0, true, l)) == EACCES);
    set_attributes set;
    set.mode = 0755;
    must(fs->setattr(me, d, set, std::nullopt));
    must(fs->lookup(alice, d, "f"));
    must(fs->readdir(alice, d, 0, 0, true, l));
    BOOST_TEST(fails(fs->create(alice, d, "g", create_mode::unchecked, {}, 0)) == EACCES);
    BOOST_TEST(fails(fs->mkdir(alice, d, "g", {})) == EACCES);
    BOOST_TEST(fails(fs->symlink(alice, d, "g", "x", {})) == EACCES);
    BOOST_TEST(fails(fs->remove(alice, d, "f")) == EACCES);
    BOOST_TEST(fails(fs->rename(alice, d, "f", fs->root(), "f")) == EACCES);
    set.mode = 0711;
    must(fs->setattr(me, d, set, std::nullopt));
    must(fs->lookup(alice, d, "f"));
    BOOST_TEST(fails(fs->readdir(alice, d, 0, 0, true, l)) == EACCES);
    BOOST_TEST(fails(fs->lookup(alice, make_directory(d, "deep", 0700), "..")) == EACCES);
    // Others' files stay in a sticky directory.
    const handle sticky = make_directory(fs->root(), "sticky", 01777);
    make_file(me, sticky, "f", "", 0666);
    const int refused = fails(fs->remove(alice, sticky, "f"));
    BOOST_TEST((refused == EPERM || refused == EACCES));
}

BOOST_AUTO_TEST_CASE(only_the_owner_changes_attributes)
{
    const request alice = user(1000, 1000, {50});
    const request bob = user(1001, 1001);
    const handle f = make_file(alice, fs->root(), "f", "data", 0666);
    set_attributes set;
    set.mode = 0777;
    BOOST_TEST(fails(fs->setattr(bob, f, set, std::nullopt)) == EPERM);
    set = {};
    set.uid = 1001;
    BOOST_TEST(fails(fs->setattr(alice, f, set, std::nullopt)) == EPERM);
    set = {};
    set.gid = 51;
    BOOST_TEST(fails(fs->setattr(alice, f, set, std::nullopt)) == EPERM);
    set.gid = 50;
    BOOST_TEST(must(fs->setattr(alice, f, set, std::nullopt)).after->gid == 50u);
    // Times: anyone who may write sets both to now, only the owner to a value.
    set = {};
    set.atime.how = set.mtime.how = set_time::kind::server_time;
    must(fs->setattr(bob, f, set, std::nullopt));
    set.mtime.how = set_time::kind::value;
    BOOST_TEST(fails(fs->setattr(bob, f, set, std::nullopt)) == EPERM);
    set = {};
    set.size = 2;
    must(fs->setattr(bob, f, set, std::nullopt));
    set.mode = std::nullopt;
    set.uid = 5;
    set.size.reset();
    BOOST_TEST(must(fs->setattr(me, f, set, std::nullopt)).after->uid == 5u);
    // 2^32-1 means "nobody was named" to the system and must not reach it.
    set.uid = 0xffffffff;
    BOOST_TEST(fails(fs->setattr(me, f, set, std::nullopt)) == EINVAL);
}

BOOST_AUTO_TEST_CASE(who_may_write_may_truncate_and_touch)
{
    const request bob = user(1001, 1001);
    const handle f = make_file(user(1000, 1000), fs->root(), "f", "data", 0666);
    set_attributes old;
    old.atime = old.mtime = {set_time::kind::value, {1000, 0}};
    must(fs->setattr(me, f, old, std::nullopt));
    // As open(O_TRUNC) at a Linux client: the size, and the time of modification by the server's clock.
    set_attributes set;
    set.size = 0;
    set.mtime.how = set_time::kind::server_time;
    auto cut = must(fs->setattr(bob, f, set, std::nullopt));
    BOOST_TEST(cut.after->size == 0u);
    BOOST_TEST(cut.after->mtime.seconds > 1000);
    BOOST_TEST(cut.after->atime.seconds == 1000);
    must(fs->setattr(me, f, old, std::nullopt));
    set.atime.how = set_time::kind::server_time;
    cut = must(fs->setattr(bob, f, set, std::nullopt));
    BOOST_TEST(cut.after->mtime.seconds > 1000);
    BOOST_TEST(cut.after->atime.seconds > 1000);
    // One time without a size.
    for (const bool modified : {false, true}) {
        must(fs->setattr(me, f, old, std::nullopt));
        set = {};
        (modified ? set.mtime : set.atime).how = set_time::kind::server_time;
        auto touched = must(fs->setattr(bob, f, set, std::nullopt));
        BOOST_TEST((touched.after->mtime.seconds > 1000) == modified);
        BOOST_TEST((touched.after->atime.seconds > 1000) == !modified);
    }
    set_attributes mode;
    mode.mode = 0644;
    must(fs->setattr(me, f, mode, std::nullopt));
    BOOST_TEST(fails(fs->setattr(bob, f, set, std::nullopt)) == EACCES);
    set.size = 0;
    BOOST_TEST(fails(fs->setattr(bob, f, set, std::nullopt)) == EACCES);
}

BOOST_AUTO_TEST_CASE(what_is_refused_cuts_nothing_off)
{
    const request alice = user(1000, 1000, {50});
    const request bob = user(1001, 1001);
    const handle f = make_file(alice, fs->root(), "f", "data", 0666);
    const auto refused = [&](const request& who, auto also) {
        set_attributes set;
        set.size = 0;
        also(set);
        const int e = fails(fs->setattr(who, f, set, std::nullopt));
        BOOST_TEST(stat(f).size == 4u);
        return e;
    };
    BOOST_TEST(refused(bob, [](set_attributes& s) { s.mode = 0777; }) == EPERM);
    BOOST_TEST(refused(bob, [](set_attributes& s) { s.uid = 1001; }) == EPERM);
    BOOST_TEST(refused(bob, [](set_attributes& s) { s.gid = 1000; }) == EPERM);
    BOOST_TEST(refused(bob, [](set_attributes& s) { s.mtime.how = set_time::kind::value; }) == EPERM);
    BOOST_TEST(refused(bob, [](set_attributes& s) { s.atime.how = set_time::kind::value; }) == EPERM);
    BOOST_TEST(refused(alice, [](set_attributes& s) { s.uid = 1001; }) == EPERM);
    BOOST_TEST(refused(alice, [](set_attributes& s) { s.gid = 51; }) == EPERM);
    BOOST_TEST(refused(me, [](set_attributes& s) { s.gid = 0xffffffff; }) == EINVAL);
    // What the owner may do goes through.
    set_attributes set;
    set.size = 0;
    set.uid = 1000;
    set.gid = 50;
    set.mode = 0600;
    BOOST_TEST(must(fs->setattr(alice, f, set, std::nullopt)).after->mode == 0600u);
}

BOOST_AUTO_TEST_CASE(the_owner_may_always_read_and_write)
{
    const request alice = user(1000, 1000);
    const handle f = make_file(alice, fs->root(), "f", {}, 0444);
    put(alice, f, 0, "written all the same");
    BOOST_TEST(fails(write(user(1001, 1000), f, 0, "x")) == EACCES);
    set_attributes set;
    set.mode = 0;
    must(fs->setattr(alice, f, set, std::nullopt));
    BOOST_TEST(get(alice, f) == "written all the same");
    set = {};
    set.size = 7;
    BOOST_TEST(must(fs->setattr(alice, f, set, std::nullopt)).after->size == 7u);
    // ACCESS tells the truth of the mode bits.
    BOOST_TEST(must(fs->access(alice, f, R_OK | W_OK)) == 0u);
}

BOOST_AUTO_TEST_CASE(what_may_be_executed_may_be_read)
{
    const handle f = make_file(me, fs->root(), "f", "program", 0711);
    BOOST_TEST(get(user(1000, 1000), f) == "program");
    BOOST_TEST(fails(write(user(1000, 1000), f, 0, "x")) == EACCES);
    BOOST_TEST(must(fs->access(user(1000, 1000), f, R_OK | X_OK)) == unsigned(X_OK));
}

BOOST_AUTO_TEST_CASE(set_id_bits)
{
    const request alice = user(1000, 1000);
    const request bob = user(1001, 1001);
    // New files in a set-group-id directory take its group, new directories the bit as well.
    const handle d = make_directory(fs->root(), "d", 0777);
    set_attributes set;
    set.gid = 77;
    must(fs->setattr(me, d, set, std::nullopt));
    set = {};
    set.mode = 02777;
    must(fs->setattr(me, d, set, std::nullopt));
    BOOST_TEST(stat(make_file(alice, d, "f")).gid == 77u);
    set.mode = 0755;
    auto sub = must(fs->mkdir(alice, d, "sub", set));
    BOOST_TEST(sub.made.attrs->gid == 77u);
    BOOST_TEST(sub.made.attrs->mode == 02755u);
    // A write by another takes the set-user-id bit away.
    const handle f = make_file(alice, fs->root(), "suid", "x", 0666);
    set.mode = 04777;
    must(fs->setattr(alice, f, set, std::nullopt));
    BOOST_TEST(stat(f).mode == 04777u);
    put(bob, f, 0, "y");
    BOOST_TEST(stat(f).mode == 0777u);
}

BOOST_AUTO_TEST_CASE(creating_for_others)
{
    const request alice = user(1000, 1000);
    set_attributes set;
    set.mode = 0600;
    set.uid = 4;
    set.gid = 5;
    auto by_root = must(fs->create(me, fs->root(), "a", create_mode::guarded, set, 0));
    BOOST_TEST(by_root.made.attrs->uid == 4u);
    BOOST_TEST(by_root.made.attrs->gid == 5u);
    set.gid.reset();
    auto by_alice = must(fs->mkdir(alice, fs->root(), "b", set));
    BOOST_TEST(by_alice.made.attrs->uid == 1000u);
    set.gid = 5;
    BOOST_TEST(fails(fs->create(alice, fs->root(), "c", create_mode::guarded, set, 0)) == EPERM);
    BOOST_TEST(fails(fs->lookup(me, fs->root(), "c")) == ENOENT);
    const int refused = fails(fs->mknod(alice, fs->root(), "dev", file_type::character_device, 1, 3, {}));
    BOOST_TEST((refused == EPERM || refused == EACCES));
}

BOOST_AUTO_TEST_CASE(impossible_users_get_nothing)
{
    const handle f = make_file(me, fs->root(), "f", "secret", 0600);
    std::byte out[8];
    set_attributes set;
    set.mode = 0777;
    for (const request& r : {user(0xffffffff, 0), user(0xffffffff, 0xffffffff), user(1000, 0xffffffff)}) {
        const int read = fails(fs->read(r, f, 0, out));
        BOOST_TEST((read == EPERM || read == EACCES));
        BOOST_TEST(fails(write(r, f, 0, "x")) != 0);
        BOOST_TEST(fails(fs->setattr(r, f, set, std::nullopt)) == EPERM);
    }
    BOOST_TEST(stat(f).mode == 0600u);
}

BOOST_AUTO_TEST_SUITE_END()

} // namespace suite
