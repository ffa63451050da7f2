// SPDX-License-Identifier: Apache-2.0
// Groups of callers that the server looks up (manage_gids), for versions 3 and 4 and MOUNT.
#include "nfs4_version3.hpp"

#include <verbena/protocols/nfs/nsswitch_groups.hpp>
#include <verbena/protocols/nfs/server/v3/mount.hpp>
#include <verbena/protocols/nfs/user_groups.hpp>

#include <algorithm>
#include <numeric>

BOOST_AUTO_TEST_SUITE(nfs4_manage_gids_test)

using namespace verbena;
using namespace verbena::test;
using nfs::user_groups;
using nfs::user_groups_options;
using how = nfs::user_groups_counters::answer;
using outcome = nfs::user_groups_counters::outcome;

namespace {

/// Users that a test names. Each lookup waits while it `is_slow`.
class known_users final : public nfs::group_source {
public:
    task<result<std::optional<std::vector<std::uint32_t>>>> find_groups(std::uint32_t uid) override
    {
        asked.push_back(uid);
        while (is_slow)
            co_await goes_on_.wait_shielded();
        if (throws)
            throw std::runtime_error("no answer");
        if (fails)
            co_return error(std::errc::io_error, "no answer");
        const auto found = groups.find(uid);
        if (found == groups.end())
            co_return std::optional<std::vector<std::uint32_t>>();
        co_return std::optional(found->second);
    }
    void answer()
    {
        is_slow = false;
        goes_on_.set();
        goes_on_.reset();
    }

    std::map<std::uint32_t, std::vector<std::uint32_t>> groups;
    std::vector<std::uint32_t> asked;
    bool is_slow = false;
    bool fails = false;
    bool throws = false;

private:
    event goes_on_;
};

std::vector<std::uint32_t> from_to(std::uint32_t first, std::uint32_t last)
{
    std::vector<std::uint32_t> all(last - first + 1);
    std::iota(all.begin(), all.end(), first);
    return all;
}

/// The file "f", which user 1 owns and group 540 may read.
struct fixture : version3_fixture {
    explicit fixture(bool squashes_root = true)
    {
        options[0].root_squash = squashes_root;
        client.connect();
    }
    ~fixture()
    {
        source.answer();
        tasks.request_stop();
        while (tasks.live() != 0)
            shard->turn();
    }
    void make_file()
    {
        storage::request root;
        root.who = storage::credential(0, 0);
        storage::set_attributes set;
        set.mode = 0640;
        const auto make = [&]() -> task<void> {
            const auto made =
                co_await files->create(root, files->root(), "f", storage::create_mode::unchecked, set, 0);
            BOOST_REQUIRE(made);
            file = made->made.handle;
            storage::set_attributes owner;
            owner.uid = 1;
            owner.gid = 540;
            const auto given = co_await files->setattr(root, file, owner, std::nullopt);
            BOOST_REQUIRE(given);
        };
        run_until_complete(*shard, make());
    }
    void manage(user_groups_options o = {})
    {
        groups.emplace(home, source, o);
        exports.look_up_groups(*groups);
        make_file();
    }
    template<class... Args>
    answer4 here(const Args&... args)
    {
        return client.call(PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{"f"}, args...);
    }
    /// "may", "may not", or why nobody knows.
    std::string reads()
    {
        answer4 out = here(ACCESS4args{access4::read});
        if (out.status() != nfsstat4::ok)
            return to_string(out.status());
        out.good<PUTROOTFH4res>();
        out.good<LOOKUP4res>();
        out.good<LOOKUP4res>();
        return out.good<ACCESS4res>().access == access4::read ? "may" : "may not";
    }
    std::string reads3()
    {
        const auto made = nfs::sign_handle(key, exports.all()[0].id, file);
        BOOST_REQUIRE(made);
        v3::READ3args args;
        args.file = to_fh3(made->bytes());
        args.count = 4;
        return to_string(call3<v3::READ3res>(v3::procedure::read, args).status);
    }
    std::uint64_t given(how what) const
    {
        return groups->counters().given[static_cast<std::size_t>(what)].value();
    }
    std::uint64_t lookups(outcome what) const
    {
        return groups->counters().lookups[static_cast<std::size_t>(what)].value();
    }

    client4 client{*this, "a"};
    known_users source;
    std::optional<user_groups> groups;
    storage::handle file;
};

struct believing_fixture : fixture {
    believing_fixture() : fixture(false) {}
};

} // namespace

BOOST_FIXTURE_TEST_CASE(without_it_the_call_says_the_groups, fixture)
{
    make_file();
    BOOST_TEST(reads() == "may not");
    user->groups[0] = 540;
    user->group_count = 1;
    BOOST_TEST(reads() == "may");
    add_version3();
    BOOST_TEST(reads3() == "NFS3_OK");
}

BOOST_FIXTURE_TEST_CASE(more_groups_than_a_call_can_name, fixture)
{
    source.groups[1000] = from_to(501, 540);
    manage();
    add_version3();
    BOOST_TEST(reads() == "may");
    BOOST_TEST(reads3() == "NFS3_OK");
    // The user has left the group; that is seen when what is known is ten minutes old.
    source.groups[1000] = from_to(501, 539);
    clock.advance(9min + 59s);
    BOOST_TEST(reads() == "may");
    clock.advance(1s);
    BOOST_TEST(reads() == "may not");
    BOOST_TEST(reads3() == "NFS3ERR_ACCES");
    // A user is looked up once for all programs and calls.
    BOOST_TEST(source.asked == std::vector<std::uint32_t>({1000, 1000}));
    BOOST_TEST(lookups(outcome::found) == 2u);
    BOOST_TEST(given(how::cached) == 2u); // version 3's program asked what was known
}

BOOST_FIXTURE_TEST_CASE(a_group_that_the_caller_only_claims_counts_for_nothing, fixture)
{
    source.groups[1000] = {100, 7};
    manage();
    add_version3();
    user->groups[0] = 540;
    user->group_count = 1;
    BOOST_TEST(reads() == "may not");
    BOOST_TEST(reads3() == "NFS3ERR_ACCES");
    // Nor does it of who is nobody on this host.
    user->uid = 1001;
    BOOST_TEST(reads() == "may not");
    BOOST_TEST(lookups(outcome::unknown) == 1u);
    // What a call names as its group is that, as knfsd takes it.
    user->gid = 540;
    BOOST_TEST(reads() == "may");
}

BOOST_FIXTURE_TEST_CASE(nobody_whose_rights_do_not_come_from_groups_is_looked_up, believing_fixture)
{
    source.fails = true;
    manage();
    user->uid = 0;
    BOOST_TEST(reads() == "may");
    const auto nobody = std::exchange(user, std::nullopt);
    BOOST_TEST(reads() == "may not");
    user = nobody;
    BOOST_TEST(source.asked.empty());
}

BOOST_FIXTURE_TEST_CASE(a_call_waits_for_its_lookup_and_holds_up_nobody_else, fixture)
{
    source.groups[1000] = {540};
    source.is_slow = true;
    manage();
    const auto asks = [&](std::uint32_t slot) {
        return begin(client.sequence(slot), PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{"f"},
                     ACCESS4args{access4::read});
    };
    const auto first = asks(1);
    const auto second = asks(2);
    BOOST_TEST(!first->is_done);
    BOOST_TEST(groups->counters().waiting.value() == 2);
    BOOST_TEST(groups->counters().under_way.value() == 1);
    user->uid = 0;
    BOOST_TEST(reads() == "may not"); // root is squashed here, and answered at once
    user->uid = 1000;
    pass(1s);
    BOOST_TEST(!second->is_done);
    source.answer();
    turns();
    BOOST_TEST_REQUIRE((first->is_done && second->is_done));
    BOOST_TEST(answer_of(*first).status() == nfsstat4::ok);
    BOOST_TEST(answer_of(*second).status() == nfsstat4::ok);
    BOOST_TEST(source.asked.size() == 1u); // both for one
    BOOST_TEST(given(how::looked_up) == 2u);
    BOOST_TEST(groups->counters().waiting.value() == 0);
    BOOST_TEST(reads() == "may");
}

BOOST_FIXTURE_TEST_CASE(a_lookup_that_hangs_puts_calls_off_and_then_gives_no_groups, fixture)
{
    source.groups[1000] = {540};
    source.is_slow = true;
    manage();
    add_version3();
    user->groups[0] = 540; // which it has even so
    user->group_count = 1;
    const auto first = begin(client.sequence(1), PUTROOTFH4args());
    pass(1900ms);
    BOOST_TEST(!first->is_done);
    pass(200ms);
    BOOST_TEST_REQUIRE(first->is_done);
    BOOST_TEST(answer_of(*first).status() == nfsstat4::delay);
    // Whoever comes later does not wait again.
    BOOST_TEST(reads() == "NFS4ERR_DELAY");
    BOOST_TEST(reads3() == "NFS3ERR_JUKEBOX");
    BOOST_TEST(given(how::late) == 3u);
    pass(57s);
    BOOST_TEST(reads() == "NFS4ERR_DELAY");
    pass(1s);
    BOOST_TEST(reads() == "may not");
    BOOST_TEST(reads3() == "NFS3ERR_ACCES");
    source.answer();
    pass(5s);
    BOOST_TEST(reads() == "may");
    BOOST_TEST(source.asked.size() == 1u);
}

BOOST_FIXTURE_TEST_CASE(a_lookup_that_fails_is_tried_again_soon, fixture)
{
    source.groups[1000] = {540};
    manage();
    BOOST_TEST(reads() == "may");
    clock.advance(10min);
    source.fails = true;
    const time_point since = clock.now();
    for (; clock.now() - since < 1min; clock.advance(6s))
        BOOST_TEST(reads() == "NFS4ERR_DELAY");
    BOOST_TEST(reads() == "may not");
    BOOST_TEST(source.asked.size() == 12u);
    BOOST_TEST(lookups(outcome::failed) == 11u);
    source.fails = false;
    source.throws = true;
    clock.advance(5s);
    BOOST_TEST(reads() == "may not");
    source.throws = false;
    BOOST_TEST(reads() == "may not");
    clock.advance(5s);
    BOOST_TEST(reads() == "may");
}

BOOST_FIXTURE_TEST_CASE(lookups_and_what_is_kept_are_bounded, fixture)
{
    user_groups_options o;
    o.most_under_way = 2;
    o.most_users = 3;
    o.most_groups = 4;
    source.is_slow = true;
    manage(o);
    const auto ask = [&](std::uint32_t uid) {
        user->uid = uid;
        return begin(client.sequence(uid % 3 + 1), PUTROOTFH4args());
    };
    const auto first = ask(1000);
    const auto second = ask(1001);
    const auto third = ask(1002);
    BOOST_TEST_REQUIRE(third->is_done);
    BOOST_TEST(answer_of(*third).status() == nfsstat4::delay);
    BOOST_TEST(given(how::refused) == 1u);
    BOOST_TEST(source.asked.size() == 2u);
    source.answer();
    turns();
    BOOST_TEST((first->is_done && second->is_done));
    // Of one user's groups the first four are kept.
    source.groups[7] = {9, 540, 3, 9, 12, 8};
    const auto look = [&](std::uint32_t uid) {
        const auto of = run_until_complete(*shard, groups->of(uid));
        BOOST_REQUIRE(of.known);
        return *of.groups;
    };
    BOOST_TEST(look(7) == std::vector<std::uint32_t>({3, 8, 9, 12}));
    for (std::uint32_t uid = 10; uid < 16; ++uid) {
        source.groups[uid] = {uid};
        look(uid);
    }
    BOOST_TEST(groups->counters().cached.value() == 5); // three, and two numbers that are nobody's
}

BOOST_FIXTURE_TEST_CASE(mount_takes_them_too, fixture)
{
    source.groups[1000] = {540};
    manage();
    storage::request root;
    root.who = storage::credential(0, 0);
    const auto make = [&]() -> task<void> {
        storage::set_attributes set;
        set.mode = 0710;
        const auto made = co_await files->mkdir(root, files->root(), "d", set);
        BOOST_REQUIRE(made);
        storage::set_attributes owner;
        owner.gid = 540;
        const auto given = co_await files->setattr(root, made->made.handle, owner, std::nullopt);
        const auto inner = co_await files->mkdir(root, made->made.handle, "inner", set);
        BOOST_REQUIRE((given && inner));
    };
    run_until_complete(*shard, make());
    nfs::mount3::mount_list mounts;
    nfs::mount3::server mount(exports, key, mounts);
    rpc::service_dispatcher all(*shard);
    all.add(mount);
    const auto status = [&]() -> std::string {
        memory_call c(pool, from);
        xdr::encoder out = c.begin(100005, 3, 1, &*user);
        encode(out, nfs::mount3::dirpath{"/export/d/inner"});
        c.end(out);
        if (!run_until_complete(*shard, all.dispatch(c)))
            return "no answer";
        nfs::mount3::mountres3 res;
        xdr::decoder in = c.reply();
        decode(in, res);
        return to_string(res.status);
    };
    BOOST_TEST(status() == "MNT3_OK");
    source.fails = true;
    clock.advance(10min);
    BOOST_TEST(status() == "no answer");
}

BOOST_AUTO_TEST_CASE(the_squashed_group_stays_squashed)
{
    nfs::export_options exported;
    exported.anonuid = 100;
    exported.anongid = 200;
    const rpc::principal user(7, 8, {});
    const auto known =
        std::make_shared<const std::vector<std::uint32_t>>(std::vector<std::uint32_t>{0, 9, 300});
    const auto groups = [&](const rpc::principal& claimed) {
        const auto who = nfs::squash(exported, claimed, known);
        return std::vector<std::uint32_t>(who.groups().begin(), who.groups().end());
    };
    BOOST_TEST(groups(user) == std::vector<std::uint32_t>({9, 200, 300}));
    // Root, who is squashed, and nobody in particular are in none of them.
    BOOST_TEST(groups(rpc::principal(0, 0, {})).empty());
    BOOST_TEST(groups(rpc::principal()).empty());
    exported.root_squash = false;
    BOOST_TEST(groups(user) == std::vector<std::uint32_t>({0, 9, 300}));
    BOOST_TEST((nfs::squash(exported, user, known).shared() == known)); // and not copied
    exported.all_squash = true;
    BOOST_TEST(groups(user).empty());
}

BOOST_AUTO_TEST_CASE(nsswitch_knows_roots_groups)
{
    auto r = std::move(*reactor::create({}));
    blocking_pool lane(1);
    nfs::nsswitch_groups source(lane);
    const auto all = [&]() -> task<void> {
        const auto root = co_await source.find_groups(0);
        BOOST_REQUIRE((root && *root));
        BOOST_TEST(std::ranges::count(**root, 0u) == 1);
        const auto nobody = co_await source.find_groups(4'000'000'123);
        BOOST_TEST((nobody && !*nobody));
    };
    run_until_complete(*r, all());
}

BOOST_AUTO_TEST_SUITE_END()
