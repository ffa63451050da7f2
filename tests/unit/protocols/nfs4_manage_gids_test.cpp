// SPDX-License-Identifier: Apache-2.0
// Groups of callers that the server looks up (manage_gids), for versions 3 and 4 and MOUNT.
#include "nfs4_log_lines.hpp"
#include "nfs4_version3.hpp"

#include <verbena/protocols/nfs/nsswitch_groups.hpp>
#include <verbena/protocols/nfs/server/caller_groups.hpp>
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
    explicit fixture(void (*set_up)(nfs4_fixture&) = [](nfs4_fixture&) {})
    {
        set_up(*this);
        BOOST_REQUIRE(options[0].clients.add("*"));
        client.connect();
    }
    ~fixture()
    {
        source.answer();
        tasks.request_stop();
        while (tasks.live() != 0)
            shard->turn();
    }
    void make_file(std::uint32_t mode = 0640)
    {
        storage::request root;
        root.who = storage::credential(0, 0);
        storage::set_attributes set;
        set.mode = mode;
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
    void manage(user_groups_options o = {}, std::uint32_t mode = 0640)
    {
        groups.emplace(home, source, o);
        exports.look_up_groups(*groups);
        make_file(mode);
    }
    /// A GETATTR of version 3 by `uid`, from `address`.
    std::shared_ptr<memory_call> asks_as(std::uint32_t uid, std::string_view address)
    {
        user->uid = uid;
        from.address = address;
        v3::GETATTR3args args;
        args.object = root3();
        return begin3<v3::GETATTR3res>(v3::procedure::getattr, args);
    }
    static std::string result_of(const std::shared_ptr<memory_call>& c)
    {
        return c->is_done ? to_string(answer3<v3::GETATTR3res>(*c).status) : "no answer yet";
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
    believing_fixture() : fixture([](nfs4_fixture& f) { f.options[0].root_squash = false; }) {}
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

// The GETATTR has a time of its own, and the PUTFH behind it, which waits for the groups, has none.
BOOST_FIXTURE_TEST_CASE(a_lease_is_whole_after_an_operation_without_a_time, fixture)
{
    source.is_slow = true;
    manage();
    (void)client.call(PUTROOTFH4args());
    tend();
    const auto of_file = nfs::sign_handle(key, exports.all()[0].id, file);
    BOOST_REQUIRE(of_file);
    const auto c = begin(client.sequence(1), PUTROOTFH4args(), GETATTR4args{{attribute::size}},
                         PUTFH4args{of_file->bytes()});
    const auto before = time_of_calls();
    pass(1900ms);
    BOOST_TEST(!c->is_done);
    source.answer();
    turns();
    BOOST_TEST_REQUIRE(c->is_done);
    BOOST_TEST(answer_of(*c).status() == nfsstat4::ok);
    BOOST_TEST((time_of_calls() - before == 1900ms));
    const auto state = commons->sessions.find(client.session)->state();
    BOOST_TEST((commons->sessions.last_heard(state) == clock.now()));
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

BOOST_FIXTURE_TEST_CASE(a_lookup_that_hangs_puts_calls_off_and_then_has_them_fail, fixture)
{
    source.groups[1000] = {540};
    source.is_slow = true;
    manage();
    add_version3();
    user->groups[0] = 540; // which it has even so
    user->group_count = 1;
    const auto first = begin(client.sequence(1), PUTROOTFH4args(), LOOKUP4args{"export"});
    pass(1900ms);
    BOOST_TEST(!first->is_done);
    pass(200ms);
    BOOST_TEST_REQUIRE(first->is_done);
    BOOST_TEST(answer_of(*first).status() == nfsstat4::delay);
    // Whoever comes later does not wait again.
    BOOST_TEST(reads() == "NFS4ERR_DELAY");
    BOOST_TEST(reads3() == "NFS3ERR_JUKEBOX");
    BOOST_TEST(given(how::late) == 3u);
    clock.advance(59min + 57s);
    BOOST_TEST(reads() == "NFS4ERR_DELAY");
    BOOST_TEST(reads3() == "NFS3ERR_JUKEBOX");
    clock.advance(1s);
    BOOST_TEST(reads() == "NFS4ERR_SERVERFAULT");
    BOOST_TEST(reads3() == "NFS3ERR_SERVERFAULT");
    BOOST_TEST(given(how::given_up) == 2u);
    source.answer();
    pass(5s);
    BOOST_TEST(reads() == "may");
    BOOST_TEST(reads3() == "NFS3_OK");
    BOOST_TEST(source.asked.size() == 1u);
}

BOOST_FIXTURE_TEST_CASE(a_lookup_that_fails_is_tried_again_soon_and_leaves_the_groups_of_before, fixture)
{
    user_groups_options o;
    o.logs = true;
    source.groups[1000] = {540};
    manage(o);
    const log_lines log;
    BOOST_TEST(reads() == "may");
    const time_point found = clock.now();
    clock.advance(10min);
    source.fails = true;
    for (; clock.now() - found < 1h; clock.advance(6s))
        BOOST_TEST(reads() == "may");
    BOOST_TEST(given(how::old) == source.asked.size() - 1);
    BOOST_TEST(lookups(outcome::failed) == source.asked.size() - 1);
    BOOST_TEST(lookups(outcome::failed) > 400u);
    BOOST_TEST(reads() == "NFS4ERR_DELAY");
    // Said once until a lookup succeeds.
    const auto said = [&] {
        return std::ranges::count_if(log.all, [](const std::string& line) {
            return line.find("can't be found out") != std::string::npos &&
                   line.find("uid=1000") != std::string::npos;
        });
    };
    BOOST_TEST(said() == 1);
    source.fails = false;
    clock.advance(5s);
    BOOST_TEST(reads() == "may");
    clock.advance(10min);
    source.throws = true;
    BOOST_TEST(reads() == "may");
    BOOST_TEST(said() == 2);
    source.throws = false;
    source.groups[1000] = {};
    BOOST_TEST(reads() == "may");
    clock.advance(5s);
    BOOST_TEST(reads() == "may not");
}

// Others may read the file, and the group may not.
BOOST_FIXTURE_TEST_CASE(whose_groups_are_not_known_never_has_the_rights_of_who_is_in_none, fixture)
{
    source.groups[1000] = {540};
    manage({}, 0604);
    add_version3();
    BOOST_TEST(reads() == "may not");
    BOOST_TEST(reads3() == "NFS3ERR_ACCES");
    source.fails = true;
    for (const time_point end = clock.now() + 3h; clock.now() < end; clock.advance(1min)) {
        const std::string said = reads(), said3 = reads3();
        BOOST_TEST((said == "may not" || said == "NFS4ERR_DELAY" || said == "NFS4ERR_SERVERFAULT"));
        BOOST_TEST(
            (said3 == "NFS3ERR_ACCES" || said3 == "NFS3ERR_JUKEBOX" || said3 == "NFS3ERR_SERVERFAULT"));
    }
    BOOST_TEST(reads() == "NFS4ERR_SERVERFAULT");
}

BOOST_FIXTURE_TEST_CASE(so_it_is_of_who_is_in_more_groups_than_are_kept, fixture)
{
    user_groups_options o;
    o.most_groups = 4;
    source.groups[1000] = {9, 540, 3, 9, 12, 8};
    manage(o, 0604);
    BOOST_TEST(reads() == "NFS4ERR_DELAY");
    source.groups[1000] = {9, 540, 3, 9, 12};
    clock.advance(5s);
    BOOST_TEST(reads() == "may not");
}

// Each try that fails, and each time that nobody asked for a while, is part of the same wait.
BOOST_FIXTURE_TEST_CASE(the_wait_runs_from_the_first_failure, fixture)
{
    source.fails = true;
    manage();
    const time_point since = clock.now();
    for (; clock.now() - since < 1h; clock.advance(90s))
        BOOST_TEST(reads() == "NFS4ERR_DELAY");
    for (int i = 0; i < 10; ++i, clock.advance(90s))
        BOOST_TEST(reads() == "NFS4ERR_SERVERFAULT");
    source.fails = false;
    BOOST_TEST(reads() == "may not");
    // The next one begins anew.
    clock.advance(1min);
    source.fails = true;
    BOOST_TEST(reads() == "NFS4ERR_DELAY");
}

BOOST_FIXTURE_TEST_CASE(so_does_that_of_a_user_for_whom_there_is_no_lookup, fixture)
{
    user_groups_options o;
    o.most_under_way = 1;
    source.is_slow = true;
    manage(o);
    add_version3();
    const auto first = asks_as(2000, "127.0.0.1");
    const time_point since = clock.now();
    for (; clock.now() - since < 1h; clock.advance(90s))
        BOOST_TEST(result_of(asks_as(1000, "127.0.0.1")) == "NFS3ERR_JUKEBOX");
    BOOST_TEST(given(how::refused) == 40u);
    BOOST_TEST(result_of(asks_as(1000, "127.0.0.1")) == "NFS3ERR_SERVERFAULT");
}

// A peer chooses the numbers of its users.
BOOST_FIXTURE_TEST_CASE(a_peer_has_its_share_of_lookups_and_leaves_the_others_theirs, fixture)
{
    user_groups_options o;
    o.logs = true;
    o.most_under_way = 16; // four of one peer
    o.most_at_once = 8;    // two
    source.is_slow = true;
    manage(o);
    add_version3();
    const log_lines log;
    std::vector<std::shared_ptr<memory_call>> strangers;
    for (std::uint32_t uid = 2000; uid < 2004; ++uid)
        strangers.push_back(asks_as(uid, "192.0.2.9"));
    BOOST_TEST(result_of(asks_as(2004, "192.0.2.9")) == "NFS3ERR_JUKEBOX");
    BOOST_TEST(given(how::refused) == 1u);
    BOOST_TEST(groups->counters().under_way.value() == 4);
    BOOST_TEST(source.asked == std::vector<std::uint32_t>({2000, 2001}));
    BOOST_TEST(std::ranges::count_if(log.all, [](const std::string& line) {
                   return line.find("of one peer") != std::string::npos &&
                          line.find("192.0.2.9") != std::string::npos;
               }) == 1);
    // Not behind them, also where one of them has asked for the same user.
    const auto mine = asks_as(1000, "127.0.0.1");
    const auto same = asks_as(2003, "127.0.0.1");
    BOOST_TEST(source.asked == std::vector<std::uint32_t>({2000, 2001, 1000, 2003}));
    BOOST_TEST(result_of(mine) == "no answer yet");
    source.answer();
    turns(50);
    BOOST_TEST(result_of(mine) == "NFS3_OK");
    BOOST_TEST(result_of(same) == "NFS3_OK");
    // Those that waited had their turn.
    for (const auto& each : strangers)
        BOOST_TEST(result_of(each) == "NFS3_OK");
    BOOST_TEST(groups->counters().under_way.value() == 0);
    BOOST_TEST(result_of(asks_as(2004, "192.0.2.9")) == "NFS3_OK");
}

// Else a user's hour would begin anew each time, and whoever writes back what he holds would never hear of it.
BOOST_FIXTURE_TEST_CASE(numbers_that_a_peer_makes_up_push_out_nobody_elses_failures, fixture)
{
    user_groups_options o;
    o.most_others = 16; // four of one peer, once there is no room
    source.fails = true;
    manage(o);
    const auto asks = [&](std::uint32_t uid, const char* from) {
        return run_until_complete(*shard, groups->of(uid, from)).is;
    };
    std::uint32_t made_up = 5000;
    const auto makes_some_up = [&] {
        (void)asks(1000, "192.0.2.9"); // it asks for him, too
        for (int i = 0; i < 40; ++i)
            (void)asks(made_up++, "192.0.2.9");
    };
    makes_some_up();
    const time_point since = clock.now();
    for (; clock.now() - since < 1h; clock.advance(10min)) {
        BOOST_TEST((asks(1000, "127.0.0.1") == nfs::groups_standing::later));
        makes_some_up();
        BOOST_TEST(groups->counters().cached.value() <= 16);
    }
    BOOST_TEST((asks(1000, "127.0.0.1") == nfs::groups_standing::refused));
}

BOOST_FIXTURE_TEST_CASE(lookups_and_what_is_kept_are_bounded, fixture)
{
    user_groups_options o;
    o.most_under_way = 2;
    o.peer_percent = 100;
    o.most_users = 3;
    source.is_slow = true;
    manage(o);
    add_version3();
    const auto first = asks_as(1000, "127.0.0.1");
    const auto second = asks_as(1001, "127.0.0.1");
    BOOST_TEST(result_of(asks_as(1002, "192.0.2.9")) == "NFS3ERR_JUKEBOX");
    BOOST_TEST(given(how::refused) == 1u);
    BOOST_TEST(source.asked.size() == 2u);
    source.answer();
    turns();
    BOOST_TEST((first->is_done && second->is_done));
    const auto look = [&](std::uint32_t uid) {
        const auto of = run_until_complete(*shard, groups->of(uid, "127.0.0.1"));
        BOOST_REQUIRE((of.is == nfs::groups_standing::known));
        return *of.groups;
    };
    for (std::uint32_t uid = 10; uid < 16; ++uid) {
        source.groups[uid] = {uid};
        BOOST_TEST(look(uid) == std::vector<std::uint32_t>({uid}));
    }
    BOOST_TEST(groups->counters().cached.value() == 6); // three, two numbers that are nobody's, and a refusal
}

// Whoever has no handle of an export that it may use can't have others wait, or the directory of users asked.
BOOST_FIXTURE_TEST_CASE(only_who_may_use_an_export_has_its_users_looked_up, fixture)
{
    const nfs::export_options& closed = options[1]; // to all but this host
    manage();
    add_version3();
    const auto handle3 = [&](const nfs::export_options& of, const nfs::handle_key& by) {
        const auto made = nfs::sign_handle(by, nfs::export_id_of(of.pseudo), of.backend->root());
        BOOST_REQUIRE(made);
        return std::vector<std::byte>(made->bytes().begin(), made->bytes().end());
    };
    const auto getattr3 = [&](const std::vector<std::byte>& handle) {
        v3::GETATTR3args args;
        args.object = to_fh3(handle);
        return to_string(call3<v3::GETATTR3res>(v3::procedure::getattr, args).status);
    };
    const auto getattr = [&](const std::vector<std::byte>& handle) {
        return to_string(
            client.call(PUTFH4args{std::span<const std::byte>(handle)}, GETATTR4args{}).status());
    };
    nfs::handle_key other_key = key;
    other_key[0] ^= std::byte(1);
    from.address = "192.0.2.9";
    BOOST_TEST(getattr3(handle3(options[0], other_key)) == "NFS3ERR_BADHANDLE");
    BOOST_TEST(getattr(handle3(options[0], other_key)) == "NFS4ERR_BADHANDLE");
    BOOST_TEST(getattr3(handle3(closed, key)) == "NFS3ERR_ACCES");
    BOOST_TEST(getattr(handle3(closed, key)) == "NFS4ERR_STALE");
    BOOST_TEST(client.call(PUTROOTFH4args(), LOOKUP4args{"deep"}).status() == nfsstat4::noent);
    nfs::mount3::mount_list mounts;
    nfs::mount3::server mount(exports, key, mounts);
    dispatcher->add(mount);
    const auto call = [&](std::uint32_t program, std::uint32_t version, std::uint32_t procedure,
                          std::string_view path) {
        memory_call c(pool, from);
        xdr::encoder out = c.begin(program, version, procedure, &*user);
        if (!path.empty())
            encode(out, nfs::mount3::dirpath{path});
        c.end(out);
        BOOST_TEST(run_until_complete(*shard, dispatcher->dispatch(c)));
    };
    call(100005, 3, 1, "/deep/other");
    call(100005, 3, 1, "/nowhere");
    call(100005, 3, 5, {});
    for (const auto& [program, version] :
         {std::pair(100003u, 3u), std::pair(100003u, 4u), std::pair(100005u, 3u)})
        call(program, version, 0, {});
    // Nor is what needs no groups.
    BOOST_TEST(client.call(PUTROOTFH4args(), GETATTR4args{}).status() == nfsstat4::ok);
    BOOST_TEST(source.asked.empty());
    BOOST_TEST(getattr3(handle3(options[0], key)) == "NFS3_OK");
    BOOST_TEST(source.asked.size() == 1u);
    user->uid = 1001;
    BOOST_TEST(getattr(handle3(options[0], key)) == "NFS4_OK");
    BOOST_TEST(source.asked.size() == 2u);
    user->uid = 1002;
    call(100005, 3, 1, "/export");
    BOOST_TEST(source.asked.size() == 3u);
    user->uid = 1003;
    BOOST_TEST(client.call(PUTROOTFH4args(), READDIR4args{}).status() != nfsstat4::delay);
    BOOST_TEST(source.asked.size() == 4u);
}

namespace {

/// "/export" squashes all, and "/export/sub", which lies in it, nobody.
struct nested_fixture : fixture {
    static void set_up(nfs4_fixture& f)
    {
        f.options[0].all_squash = true;
        f.options[1].pseudo = "/export/sub";
        BOOST_REQUIRE(f.options[1].clients.add("*"));
    }
    nested_fixture() : fixture(set_up) {}
};

} // namespace

// The handle alone does not tell that groups will matter.
BOOST_FIXTURE_TEST_CASE(groups_that_matter_in_another_export_are_looked_up_on_the_way, nested_fixture)
{
    manage();
    add_version3();
    v3::LOOKUP3args into;
    into.what.dir = root3();
    into.what.name = "sub";
    v3::GETATTR3args outer;
    outer.object = root3();
    BOOST_TEST(to_string(call3<v3::GETATTR3res>(v3::procedure::getattr, outer).status) == "NFS3_OK");
    BOOST_TEST(source.asked.empty());
    BOOST_TEST(to_string(call3<v3::LOOKUP3res>(v3::procedure::lookup, into).status) == "NFS3_OK");
    BOOST_TEST(source.asked == std::vector<std::uint32_t>({1000}));
    user->uid = 1001;
    BOOST_TEST(client.call(PUTROOTFH4args(), LOOKUP4args{"export"}, GETATTR4args{}).status() == nfsstat4::ok);
    BOOST_TEST(source.asked.size() == 1u);
    BOOST_TEST(client.call(PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{"sub"}).status() ==
               nfsstat4::ok);
    BOOST_TEST(source.asked.size() == 2u);
    // A second handle may be of another export.
    user->uid = 1002;
    v3::LINK3args link;
    link.file = root3();
    const auto inner = nfs::sign_handle(key, exports.all()[1].id, others->root());
    BOOST_REQUIRE(inner);
    link.link.dir = to_fh3(inner->bytes());
    link.link.name = "x";
    BOOST_TEST(to_string(call3<v3::LINK3res>(v3::procedure::link, link).status) == "NFS3ERR_XDEV");
    BOOST_TEST(source.asked.size() == 3u);
    source.fails = true;
    user->uid = 1003;
    BOOST_TEST(to_string(call3<v3::LOOKUP3res>(v3::procedure::lookup, into).status) == "NFS3ERR_JUKEBOX");
    BOOST_TEST(client.call(PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{"sub"}).status() ==
               nfsstat4::delay);
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
    BOOST_TEST(status() == "MNT3_OK"); // as they were
    clock.advance(50min);
    BOOST_TEST(status() == "no answer");
    clock.advance(10min);
    BOOST_TEST(status() == "MNT3ERR_SERVERFAULT");
}

BOOST_FIXTURE_TEST_CASE(the_squashed_group_stays_squashed_and_no_list_is_copied, fixture)
{
    source.groups[7] = {0, 9, 300};
    groups.emplace(home, source);
    nfs::caller_groups known;
    nfs::export_options exported;
    exported.anonuid = 100;
    exported.anongid = 200;
    const auto call_of = [&](const rpc::auth_sys* who) {
        auto c = std::make_unique<memory_call>(pool, from);
        const xdr::encoder out = c->begin(100003, 3, 1, who);
        c->end(out);
        (void)c->decode_header();
        (void)c->authenticate();
        return c;
    };
    rpc::auth_sys who;
    who.uid = 7;
    who.gid = 8;
    const auto user = call_of(&who);
    who.uid = who.gid = 0;
    const auto root = call_of(&who);
    const auto nobody = call_of(nullptr);
    const auto acts = [&](const memory_call& c) {
        storage::credential as;
        BOOST_TEST((known.act(exported, c, &*groups, as) == nfs::groups_standing::known));
        return as;
    };
    const auto groups_of = [&](const memory_call& c) {
        const storage::credential as = acts(c);
        return std::vector<std::uint32_t>(as.groups().begin(), as.groups().end());
    };
    storage::credential as;
    BOOST_TEST((known.act(exported, *user, &*groups, as) == nfs::groups_standing::later));
    run_until_complete(*shard, known.learn(*user, *groups));
    BOOST_TEST(groups_of(*user) == std::vector<std::uint32_t>({9, 200, 300}));
    const void* const first = acts(*user).shared().get();
    exported.anongid = 201;
    BOOST_TEST(groups_of(*user) == std::vector<std::uint32_t>({9, 201, 300}));
    exported.anongid = 200;
    BOOST_TEST(acts(*user).shared().get() == first);
    // Root, who is squashed, and nobody in particular are in none of them.
    BOOST_TEST(groups_of(*root).empty());
    BOOST_TEST(groups_of(*nobody).empty());
    exported.root_squash = false;
    BOOST_TEST(groups_of(*user) == std::vector<std::uint32_t>({0, 9, 300}));
    const auto all = run_until_complete(*shard, groups->of(7, "127.0.0.1"));
    BOOST_TEST((acts(*user).shared() == all.groups)); // that which all shards have
    exported.all_squash = true;
    BOOST_TEST(groups_of(*user).empty());
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
