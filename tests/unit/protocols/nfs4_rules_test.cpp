// SPDX-License-Identifier: Apache-2.0
// Rules of the RFCs, one a row: what is sent, and what has to be answered. Each row has a server of its own.
#include "nfs4_rules.hpp"
#include "nfs4_user_names.hpp"
#include "nfs4_v40_client.hpp"

#include <verbena/protocols/storage/forwarding_backend.hpp>

BOOST_AUTO_TEST_SUITE(nfs4_rules_test)

using namespace verbena;
using namespace verbena::test;

namespace {

/// Files that nobody may link to, as a file system without links says it, and the kernel to who does not own a file.
class without_links final : public storage::forwarding_backend {
public:
    explicit without_links(storage::file_backend& below)
        : forwarding_backend(below, storage::filter_bytes::are_those_below), info_(below.info())
    {
    }
    const storage::filesystem_info& info() const noexcept override { return info_; }
    task<result<storage::link_result>> link(const storage::request&, const storage::handle&,
                                            const storage::handle&, std::string_view) override
    {
        refused = true;
        co_return error::from_errno(EPERM);
    }
    task<result<storage::attributes>> getattr(const storage::request& r, const storage::handle& file) override
    {
        if (refused && goes)
            co_return error::from_errno(ESTALE);
        co_return co_await forwarding_backend::getattr(r, file);
    }
    void has_links(bool any) { info_.links = any; }
    bool goes = false; ///< then the file is not there any more
    bool refused = false;

private:
    storage::filesystem_info info_;
};

struct world : rules_world {
    ~world() { stop(); }
    /// Another user, on another host if `address` says so.
    void become(std::uint32_t uid, std::string_view address = {})
    {
        user->uid = uid;
        if (!address.empty())
            from.address = address;
    }
    /// Exports are everybody's.
    void open_to_all()
    {
        for (nfs::export_options& made : options)
            BOOST_REQUIRE(made.clients.add("*"));
    }
    /// The server has noticed that the first client, which has a file open, has let its lease run out.
    void let_client_lapse()
    {
        client.connect();
        BOOST_TEST_REQUIRE(client.open(client.creating("f")).status == nfsstat4::ok);
        other.connect();
        for (int i = 0; i < 2; ++i) {
            clock.advance(60s);
            BOOST_TEST(other.call(PUTROOTFH4args()).status() == nfsstat4::ok);
        }
    }
    /// EXCHANGE_ID of another user who has the first client's name.
    nfsstat4 take_name()
    {
        user->uid = 2000;
        return compound(client4(*this, "a", 2).exchange()).status();
    }
    /// Whether a SEQUENCE of the first client's tells CB_PATH_DOWN.
    said path_of_client()
    {
        clock.advance(1s); // sessions without a back channel are asked about as often
        return (flags(client) & seq4_status::cb_path_down) != 0 ? "down" : "up";
    }
    /// LINK of a file of the first export.
    nfsstat4 link_to_f()
    {
        options[0].backend = &linkless;
        client.connect();
        BOOST_TEST_REQUIRE(client.open(client.creating("f")).status == nfsstat4::ok);
        return here(LOOKUP4args{"f"}, SAVEFH4args(), PUTROOTFH4args(), LOOKUP4args{"export"}, LINK4args{"g"})
            .status();
    }
    /// VERIFY of a bitmap that is the server's, and one word of later attributes more.
    nfsstat4 verify_longer(attribute which)
    {
        client.connect();
        answer4 out = here(GETATTR4args{{which}});
        out.good<PUTROOTFH4res>();
        out.good<LOOKUP4res>();
        const std::span<const std::byte> shorter = out.good<GETATTR4res>().obj_attributes.attr_vals;
        std::vector<std::byte> longer(shorter.begin(), shorter.end());
        for (; longer[3] != std::byte(4); longer[3] = std::byte(std::to_integer<unsigned>(longer[3]) + 1))
            longer.resize(longer.size() + 4);
        longer.back() = std::byte(1);
        return here(VERIFY4args{values_of(which, longer)}).status();
    }
    /// CREATE_SESSION of one more session of the first client's.
    CREATE_SESSION4args one_more() const { return client4::session_of(client.id, client.create_sequence); }
    recovery_lists lists;
    memory_store disk{lists};
    without_links linkless{*files};
};

/// A server of minor version 0.
struct old_world : v40_fixture {
    template<class... Args>
    nfsstat4 in_root(const Args&... args)
    {
        return compound(PUTROOTFH4args(), args...).status();
    }
    std::vector<std::byte> handle_of_link()
    {
        answer4 out =
            compound(PUTROOTFH4args(), LOOKUP4args{"export"}, making("l", nfs_ftype4::lnk), GETFH4args());
        out.good<PUTROOTFH4res>();
        out.good<LOOKUP4res>();
        out.good<CREATE4res>();
        const auto fh = out.good<GETFH4res>();
        return {fh.object.begin(), fh.object.end()};
    }
    client0 client{*this, "a"};
};

} // namespace

BOOST_AUTO_TEST_CASE(stateids)
{
    static const rule<world> rules[] = {
        {"8881 8.2.3", "CLOSE takes the current stateid with its number", nfsstat4::old_stateid,
         [](world& w) -> said {
             w.client.connect();
             return w
                 .here(w.client.creating("f"), SAVEFH4args(), PUTROOTFH4args(), LOOKUP4args{"export"},
                       w.client.opening("f"), RESTOREFH4args(), CLOSE4args{0, stateid4::current()})
                 .status();
         }},
        {"8881 8.2.3", "so does OPEN_DOWNGRADE", nfsstat4::old_stateid,
         [](world& w) -> said {
             w.client.connect();
             return w
                 .here(w.client.creating("f"), SAVEFH4args(), PUTROOTFH4args(), LOOKUP4args{"export"},
                       w.client.opening("f"), RESTOREFH4args(),
                       OPEN_DOWNGRADE4args{stateid4::current(), 0, share4::access_both, share4::deny_none})
                 .status();
         }},
        {"8881 8.2.3", "an `other` of zeros has no other number than those of the special stateids",
         nfsstat4::bad_stateid,
         [](world& w) -> said {
             w.client.connect();
             w.make("d", nfs_ftype4::dir);
             attributes mode;
             mode.present.set(attribute::mode);
             mode.mode = 0700;
             const encoded values(mode);
             return w.at("d", SETATTR4args{stateid4{7, {}}, values.raw});
         }},
    };
    hold(rules);
}

BOOST_AUTO_TEST_CASE(attributes_that_a_delegation_holds_back)
{
    static const rule<world> rules[] = {
        {"8881 10.4.3, 18.31.3", "VERIFY compares with what the holder says", nfsstat4::ok,
         [](world& w) -> said {
             const auto file = w.delegated();
             w.channel->values.size = 77;
             ++w.channel->values.change;
             const encoded held = sized(77);
             return w.other.call(PUTFH4args{client4::handle_of(file)}, VERIFY4args{held.raw}).status();
         }},
        {"8881 10.4.3, 18.15.3", "and so does NVERIFY", nfsstat4::ok,
         [](world& w) -> said {
             const auto file = w.delegated();
             w.channel->values.size = 77;
             ++w.channel->values.change;
             const encoded before = sized(0);
             return w.other.call(PUTFH4args{client4::handle_of(file)}, NVERIFY4args{before.raw}).status();
         }},
        {"8881 18.31.3", "VERIFY that fails whatever the holder says does not ask it", "0 calls",
         [](world& w) -> said {
             const auto file = w.delegated();
             const encoded size = sized(0);
             const std::size_t before = w.channel->calls.size();
             const fattr4 cut = values_of(attribute::size, size.raw.attr_vals.first(4));
             BOOST_TEST(w.other.call(PUTFH4args{client4::handle_of(file)}, VERIFY4args{cut}).status() ==
                        nfsstat4::badxdr);
             fattr4 more = size.raw;
             more.attrmask.set(attribute::quota_used);
             BOOST_TEST(w.other.call(PUTFH4args{client4::handle_of(file)}, VERIFY4args{more}).status() ==
                        nfsstat4::attrnotsupp);
             return std::to_string(w.channel->calls.size() - before) + " calls";
         }},
        {"8276 8.4.2", "SETXATTR of a value that is too long recalls nothing", "0 calls",
         [](world& w) -> said {
             const auto file = w.delegated();
             const std::size_t before = w.channel->calls.size();
             const std::vector<std::byte> value(65537);
             SETXATTR4args args;
             args.name = "x";
             args.value = std::span<const std::byte>(value);
             w.minor = 2;
             BOOST_TEST(w.other.call(PUTFH4args{client4::handle_of(file)}, args).status() ==
                        nfsstat4::xattr2big);
             return std::to_string(w.channel->calls.size() - before) + " calls";
         }},
        {"8881 18.33.3", "a call that follows BACKCHANNEL_CTL is one of the new program", "42",
         [](world& w) -> said {
             const auto file = w.delegated();
             BACKCHANNEL_CTL4args args;
             args.cb_program = 42;
             BOOST_TEST(w.client.call(args).status() == nfsstat4::ok);
             (void)w.look(w.other, file, {attribute::size});
             return std::to_string(w.channel->calls.back().program);
         }},
    };
    hold(rules);
}

BOOST_AUTO_TEST_CASE(comparisons)
{
    static const rule<world> rules[] = {
        {"8881 18.15.3", "NVERIFY of a value that is cut off", nfsstat4::badxdr,
         [](world& w) -> said {
             w.client.connect();
             return w.here(NVERIFY4args{values_of(attribute::size, sized(0).raw.attr_vals.first(4))})
                 .status();
         }},
        {"8881 18.31.3", "VERIFY with bytes that belong to no attribute", nfsstat4::badxdr,
         [](world& w) -> said {
             w.client.connect();
             const std::array<std::byte, 12> longer{};
             return w.here(VERIFY4args{values_of(attribute::size, longer)}).status();
         }},
        {"8881 3.2, 18.31.3", "a bitmap with a word of zeros at its end is the same bitmap", nfsstat4::ok,
         [](world& w) -> said {
             w.client.connect();
             answer4 out = w.here(GETATTR4args{{attribute::supported_attrs}});
             out.good<PUTROOTFH4res>();
             out.good<LOOKUP4res>();
             const std::span<const std::byte> shorter = out.good<GETATTR4res>().obj_attributes.attr_vals;
             std::vector<std::byte> longer(shorter.begin(), shorter.end());
             longer.resize(longer.size() + 4);
             longer[3] = std::byte(std::to_integer<unsigned>(longer[3]) + 1);
             return w.here(VERIFY4args{values_of(attribute::supported_attrs, longer)}).status();
         }},
        {"8881 18.31.3", "a bitmap with one bit more is another one, also beyond all that is known",
         nfsstat4::not_same, [](world& w) -> said { return w.verify_longer(attribute::supported_attrs); }},
        {"8881 18.31.3", "and so is one of suppattr_exclcreat", nfsstat4::not_same,
         [](world& w) -> said { return w.verify_longer(attribute::suppattr_exclcreat); }},
    };
    hold(rules);
}

BOOST_AUTO_TEST_CASE(ranges)
{
    static constexpr std::uint64_t longest = ~std::uint64_t(0);
    static const rule<world> rules[] = {
        {"8881 18.10.3", "offset and length of a lock add up to 2^64 - 1 at most", nfsstat4::inval,
         [](world& w) -> said {
             w.client.connect();
             const auto file = w.client.open(w.client.creating("f"));
             LOCKT4args args;
             args.offset = 2;
             args.length = longest - 1;
             return w.client.call(PUTFH4args{client4::handle_of(file)}, args).status();
         }},
    };
    hold(rules);
}

BOOST_AUTO_TEST_CASE(sessions)
{
    static const rule<world> rules[] = {
        {"8881 18.36.4", "CREATE_SESSION that finds no room is answered the same when it is sent again",
         nfsstat4::nospc,
         [](world& w) -> said {
             w.limits.sessions_per_client = 1;
             w.client.connect();
             const auto args = client4::session_of(w.client.id, w.client.create_sequence);
             BOOST_TEST(w.compound(args).status() == nfsstat4::nospc);
             BOOST_TEST(w.compound(DESTROY_SESSION4args{w.client.session}).status() == nfsstat4::ok);
             return w.compound(args).status();
         }},
        {"8881 18.36.4", "and has used up its number", nfsstat4::ok,
         [](world& w) -> said {
             w.limits.sessions_per_client = 1;
             w.client.connect();
             auto args = client4::session_of(w.client.id, w.client.create_sequence);
             BOOST_TEST(w.compound(args).status() == nfsstat4::nospc);
             BOOST_TEST(w.compound(DESTROY_SESSION4args{w.client.session}).status() == nfsstat4::ok);
             ++args.sequence;
             return w.compound(args).status();
         }},
        {"8881 18.36.4", "so is one with flags that are none", nfsstat4::inval,
         [](world& w) -> said {
             w.client.connect();
             CREATE_SESSION4args args = w.one_more();
             args.flags = 0x100;
             BOOST_TEST(w.compound(args).status() == nfsstat4::inval);
             args.flags = 0;
             return w.compound(args).status();
         }},
        {"8881 18.36.4", "a number that was out of turn is good when its turn has come", nfsstat4::ok,
         [](world& w) -> said {
             w.client.connect();
             CREATE_SESSION4args args = w.one_more();
             ++args.sequence;
             BOOST_TEST(w.compound(args).status() == nfsstat4::seq_misordered);
             w.client.open_session();
             return w.compound(args).status();
         }},
        {"8881 15.1.1.3, 18.36.4", "who finds no room since others have it comes again, with the same number",
         nfsstat4::ok,
         [](world& w) -> said {
             w.limits.sessions_per_peer = 1;
             w.client.connect();
             const CREATE_SESSION4args args = w.one_more();
             BOOST_TEST(w.compound(args).status() == nfsstat4::delay);
             BOOST_TEST(w.compound(DESTROY_SESSION4args{w.client.session}).status() == nfsstat4::ok);
             return w.compound(args).status();
         }},
        {"8881 18.36.4", "one with flags that are none has used up its number", nfsstat4::ok,
         [](world& w) -> said {
             w.client.connect();
             auto args = client4::session_of(w.client.id, w.client.create_sequence);
             args.flags = 0x100;
             BOOST_TEST(w.compound(args).status() == nfsstat4::inval);
             args.flags = 0;
             ++args.sequence;
             return w.compound(args).status();
         }},
        {"8881 18.46.3", "a SEQUENCE that fails leaves the slot the reply that it kept", "the same",
         [](world& w) -> said {
             const auto kept = w.short_of_room();
             const auto first = w.compound(kept, PUTROOTFH4args());
             BOOST_TEST(
                 w.tagged(128, SEQUENCE4args{w.client.session, kept.sequenceid + 1, 0, 0, true}).status() ==
                 nfsstat4::rep_too_big_to_cache);
             const auto again = w.compound(kept, PUTROOTFH4args());
             return first.bytes() == again.bytes() ? said("the same") : said(again.status());
         }},
        {"8881 18.46.3", "nor does it renew the lease", nfsstat4::ok,
         [](world& w) -> said {
             w.limits.cached_response_size = 120;
             w.client.connect();
             BOOST_TEST_REQUIRE(w.client.open(w.client.creating("f")).status == nfsstat4::ok);
             w.other.connect();
             w.clock.advance(60s);
             BOOST_TEST(w.other.call(PUTROOTFH4args()).status() == nfsstat4::ok);
             BOOST_TEST(w.tagged(128, SEQUENCE4args{w.client.session, w.client.sequences[0] + 1, 0, 0, true})
                            .status() == nfsstat4::rep_too_big_to_cache);
             w.clock.advance(60s);
             return w.other.open(w.other.opening("f", share4::access_read, share4::deny_write)).status;
         }},
        {"8881 18.46.3", "CB_PATH_DOWN is told on each session of the client", "down",
         [](world& w) -> said {
             w.connect(w.client);
             w.client.open_session(); // without a back channel
             BOOST_TEST(w.path_of_client().text == "up");
             w.channel->is_open = false;
             w.way = std::make_shared<called_client>(w.pool);
             return w.path_of_client();
         }},
        {"8881 18.46.3", "but not over a connection that brings no calls", "up",
         [](world& w) -> said {
             w.connect(w.client);
             w.client.open_session(); // without a back channel
             w.channel->is_open = false;
             w.way.reset();
             return w.path_of_client();
         }},
        {"8881 18.46.3", "nor on a session whose client agreed to no calls", "up",
         [](world& w) -> said {
             w.connect(w.client);
             CREATE_SESSION4args calls_nobody = w.one_more();
             calls_nobody.back_chan_attrs = {};
             w.client.session = w.compound(calls_nobody).good<CREATE_SESSION4res>().sessionid;
             w.client.sequences.clear();
             w.channel->is_open = false;
             w.way = std::make_shared<called_client>(w.pool);
             return w.path_of_client();
         }},
        {"8881 18.35.4", "the client of another user whose lease is over gives way (case 3)", nfsstat4::ok,
         [](world& w) -> said {
             w.client.connect();
             w.clock.advance(91s);
             w.user->uid = 2000;
             return w.compound(client4(w, "a", 2).exchange()).status();
         }},
        {"8881 18.35.4", "with all that it has open", "0 clients",
         [](world& w) -> said {
             w.client.connect();
             BOOST_TEST_REQUIRE(w.client.open(w.client.creating("f")).status == nfsstat4::ok);
             w.clock.advance(91s);
             BOOST_TEST(w.take_name() == nfsstat4::ok);
             return std::to_string(w.commons->state.stats().clients.value()) + " clients";
         }},
        {"8881 18.35.4", "but not while a call of its runs, which is to renew its lease",
         nfsstat4::clid_inuse,
         [](world& w) -> said {
             w.let_client_lapse();
             const std::shared_ptr<session> of = w.commons->sessions.find(w.client.session);
             BOOST_TEST_REQUIRE(of);
             slot_use call;
             BOOST_TEST((call.begin(*of, w.client.sequence(), call_mark()) == slot_verdict::run));
             const nfsstat4 out = w.take_name();
             call.finish();
             return out;
         }},
        {"8881 18.35.4", "nor while a session of its is being created", nfsstat4::clid_inuse,
         [](world& w) -> said {
             w.client.connect();
             BOOST_TEST(w.compound(DESTROY_SESSION4args{w.client.session}).status() == nfsstat4::ok);
             std::array<std::byte, 12> who{};
             xdr::store_u32(who.data(), 1);
             xdr::store_u32(who.data() + 4, w.user->uid);
             xdr::store_u32(who.data() + 8, w.user->gid);
             const auto begun = w.commons->sessions.begin_creation(w.one_more(), siphash(w.commons->key, who),
                                                                   w.clock.now());
             BOOST_TEST(begun.status == nfsstat4::ok);
             const session_table::creating creating(w.commons->sessions, w.client.id);
             return w.take_name();
         }},
        {"8881 18.35.4", "an idle one gives way", nfsstat4::ok,
         [](world& w) -> said {
             w.client.connect();
             BOOST_TEST(w.compound(DESTROY_SESSION4args{w.client.session}).status() == nfsstat4::ok);
             return w.take_name();
         }},
        {"8881 18.35.4", "one that has a session does not, from wherever it is asked", nfsstat4::clid_inuse,
         [](world& w) -> said {
             w.open_to_all();
             w.client.connect();
             w.become(2000, "192.0.2.9");
             return w.take_name();
         }},
        {"8881 18.35.4", "one that can't be ended keeps all", nfsstat4::ok,
         [](world& w) -> said {
             w.store = &w.disk;
             w.let_client_lapse();
             w.disk.fails = [] { return true; };
             BOOST_TEST(w.take_name() == nfsstat4::delay);
             w.disk.fails = nullptr;
             w.user->uid = 1000;
             return w.client.open(w.client.opening("f")).status;
         }},
        {"8881 8.4.2.1", "who got a name, where another client had to make room, may reclaim by it",
         "recorded",
         [](world& w) -> said {
             w.store = &w.disk;
             w.limits.clients_per_peer = 1;
             w.open_to_all();
             w.client.connect();
             BOOST_TEST_REQUIRE(w.client.open(w.client.creating("f")).status == nfsstat4::ok);
             w.become(2000, "192.0.2.9");
             client4(w, "in the way").connect();
             w.clock.advance(91s);
             client4 next(w, "a", 2);
             next.connect();
             w.tasks.spawn([&w] { return w.commons->tend(); });
             for (int i = 0; i < 3; ++i) {
                 w.pass(60s, 1s);
                 BOOST_TEST(next.call(PUTROOTFH4args()).status() == nfsstat4::ok);
             }
             return w.lists.new_list.contains("a") ? "recorded" : "not recorded";
         }},
        {"8881 18.35.4", "an update of another verifier and principal is NOT_SAME (case 8)",
         nfsstat4::not_same,
         [](world& w) -> said {
             w.client.connect();
             w.user->uid = 2000;
             const client4 another(w, "a", 2);
             EXCHANGE_ID4args args = another.exchange();
             args.flags = exchgid4::upd_confirmed_rec_a;
             return w.compound(args).status();
         }},
        {"8881 18.34.3", "BIND_CONN_TO_SESSION stands alone, also behind SEQUENCE", nfsstat4::not_only_op,
         [](world& w) -> said {
             w.connect(w.client);
             return w.client.call(w.binding(channel_dir_from_client4::fore_or_both)).status();
         }},
        {"8881 18.34.3", "BACK_OR_BOTH of a connection that brings no calls", nfsstat4::inval,
         [](world& w) -> said {
             w.connect(w.client);
             w.way.reset();
             return w.compound(w.binding(channel_dir_from_client4::back_or_both)).status();
         }},
        {"8881 18.34.3", "FORE of a connection of the back channel", nfsstat4::inval,
         [](world& w) -> said {
             w.connect(w.client);
             return w.compound(w.binding(channel_dir_from_client4::fore)).status();
         }},
        {"8881 18.33.3", "BACKCHANNEL_CTL without parameters names another program", "42",
         [](world& w) -> said {
             w.connect(w.client);
             BACKCHANNEL_CTL4args args;
             args.cb_program = 42;
             BOOST_TEST(w.client.call(args).status() == nfsstat4::ok);
             return std::to_string(w.commons->sessions.find(w.client.session)->back().identity()->program);
         }},
        {"8881 18.33.3", "and nothing where there is no back channel", nfsstat4::ok,
         [](world& w) -> said {
             w.client.connect();
             BACKCHANNEL_CTL4args args;
             args.cb_program = 42;
             return w.client.call(args).status();
         }},
        {"8881 18.48.3", "TEST_STATEID answers for as many as it was asked about", "1200 bad ones",
         [](world& w) -> said {
             w.client.connect();
             const std::vector<stateid4> ids(1200, stateid4{1, {std::byte(9)}});
             TEST_STATEID4args args;
             args.stateids = std::span<const stateid4>(ids);
             answer4 out = w.client.call(args);
             std::size_t bad = 0;
             for (const nfsstat4 each : out.good<TEST_STATEID4res>().status_codes)
                 bad += each == nfsstat4::bad_stateid;
             return std::to_string(bad) + " bad ones";
         }},
        {"8881 18.46.3", "of more than a reply may hold it answers for none", nfsstat4::rep_too_big,
         [](world& w) -> said {
             w.client.largest_reply = 1000;
             w.client.connect();
             const std::vector<stateid4> ids(1200, stateid4{1, {std::byte(9)}});
             TEST_STATEID4args args;
             args.stateids = std::span<const stateid4>(ids);
             return w.client.call(args).status();
         }},
    };
    hold(rules);
}

BOOST_AUTO_TEST_CASE(kinds_of_files)
{
    static const rule<world> rules[] = {
        {"7862 15.2.3", "COPY of nothing to a directory", nfsstat4::wrong_type,
         [](world& w) -> said {
             w.minor = 2;
             w.client.connect();
             w.make("d", nfs_ftype4::dir);
             BOOST_TEST(w.client.open(w.client.creating("f")).status == nfsstat4::ok);
             return w.copy_to("d");
         }},
        {"7862 15.2.3", "COPY of nothing to a file that is not the caller's", nfsstat4::access,
         [](world& w) -> said {
             w.minor = 2;
             w.client.connect();
             BOOST_TEST(w.client.open(w.client.creating("f")).status == nfsstat4::ok);
             auto args = w.client.creating("mine");
             attributes mode;
             mode.present.set(attribute::mode);
             mode.mode = 0600;
             const encoded values(mode);
             args.openhow.attrs = values.raw;
             BOOST_TEST(w.client.open(args).status == nfsstat4::ok);
             w.user->uid = 2000;
             return w.copy_to("mine");
         }},
        {"7862 15.5.2", "IO_ADVISE of a directory", nfsstat4::isdir,
         [](world& w) -> said {
             w.minor = 2;
             w.client.connect();
             w.make("d", nfs_ftype4::dir);
             return w.at("d", IO_ADVISE4args());
         }},
        {"7862 15.5.2", "IO_ADVISE of a link", nfsstat4::symlink,
         [](world& w) -> said {
             w.minor = 2;
             w.client.connect();
             w.make("l", nfs_ftype4::lnk);
             return w.at("l", IO_ADVISE4args());
         }},
        {"8881 18.29.3", "SECINFO with a link for a directory", nfsstat4::notdir,
         [](world& w) -> said {
             w.client.connect();
             w.make("l", nfs_ftype4::lnk);
             return w.at("l", SECINFO4args{"f"});
         }},
        {"8881 18.16.3", "EXCLUSIVE4_1 with an attribute that suppattr_exclcreat leaves out", nfsstat4::inval,
         [](world& w) -> said {
             w.client.connect();
             auto args = w.client.creating("f", createmode4::exclusive4_1);
             args.openhow.attrs.attrmask = {attribute::numlinks, attribute::quota_used};
             return w.here(args).status();
         }},
        {"8881 18.16.3", "also with one that only a later minor version has", nfsstat4::inval,
         [](world& w) -> said {
             w.client.connect();
             auto args = w.client.creating("f", createmode4::exclusive4_1);
             args.openhow.attrs.attrmask = {attribute::mode_umask};
             return w.here(args).status();
         }},
        {"8881 18.23.3", "READDIR of what a later minor version brings", nfsstat4::ok,
         [](world& w) -> said {
             w.client.connect();
             READDIR4args args;
             args.dircount = args.maxcount = 4096;
             args.attr_request = {attribute::fileid, attribute::mode_umask};
             return w.here(args).status();
         }},
        {"8881 18.9.3", "LINK of a file that only its owner may link to", nfsstat4::access,
         [](world& w) -> said { return w.link_to_f(); }},
        {"8881 18.9.3", "LINK where there are no links", nfsstat4::notsupp,
         [](world& w) -> said {
             w.linkless.has_links(false);
             return w.link_to_f();
         }},
        {"8881 18.9.3", "LINK of a file that has gone by then", nfsstat4::stale,
         [](world& w) -> said {
             w.linkless.goes = true;
             return w.link_to_f();
         }},
        {"8881 18.7.3", "GETATTR of what a later minor version brings", nfsstat4::ok,
         [](world& w) -> said {
             w.client.connect();
             return w.here(GETATTR4args{{attribute::mode_umask}}).status();
         }},
        {"8881 18.2.3", "CLOSE in the pseudo file system", nfsstat4::bad_stateid,
         [](world& w) -> said {
             w.client.connect();
             const auto file = w.client.open(w.client.creating("f"));
             return w.client.call(PUTROOTFH4args(), CLOSE4args{0, file.id}).status();
         }},
        {"8881 18.18.3", "OPEN_DOWNGRADE in the pseudo file system", nfsstat4::bad_stateid,
         [](world& w) -> said {
             w.client.connect();
             const auto file = w.client.open(w.client.creating("f"));
             return w.client
                 .call(PUTROOTFH4args(),
                       OPEN_DOWNGRADE4args{file.id, 0, share4::access_read, share4::deny_none})
                 .status();
         }},
        {"8881 18.6.3", "DELEGRETURN in the pseudo file system", nfsstat4::bad_stateid,
         [](world& w) -> said {
             const auto file = w.delegated();
             return w.client.call(PUTROOTFH4args(), DELEGRETURN4args{file.res.delegation.stateid}).status();
         }},
        {"8881 18.16.3", "OPEN of a name in a link", nfsstat4::notdir,
         [](world& w) -> said {
             w.client.connect();
             w.make("l", nfs_ftype4::lnk);
             return w.at("l", w.client.opening("f"));
         }},
        {"8881 18.9.4", "LINK of a file that has no name any more", nfsstat4::stale,
         [](world& w) -> said {
             w.client.connect();
             const auto file = w.client.open(w.client.creating("f"));
             BOOST_TEST(w.here(REMOVE4args{"f"}).status() == nfsstat4::ok);
             return w.client
                 .call(PUTFH4args{client4::handle_of(file)}, SAVEFH4args(), PUTROOTFH4args(),
                       LOOKUP4args{"export"}, LINK4args{"g"})
                 .status();
         }},
        {"8881 18.4.4", "CREATE with a size beyond all files", nfsstat4::inval,
         [](world& w) -> said {
             w.client.connect();
             CREATE4args args = making("d");
             const encoded large = sized(std::uint64_t(1) << 63);
             args.createattrs = large.raw;
             return w.here(args).status();
         }},
        {"8276 8.4.2", "SETXATTR of a value beyond 65536 bytes", nfsstat4::xattr2big,
         [](world& w) -> said {
             w.minor = 2;
             w.client.connect();
             BOOST_TEST(w.client.open(w.client.creating("f")).status == nfsstat4::ok);
             const std::vector<std::byte> value(65537);
             SETXATTR4args args;
             args.name = "x";
             args.value = std::span<const std::byte>(value);
             return w.at("f", args);
         }},
    };
    hold(rules);
}

BOOST_AUTO_TEST_CASE(owners_of_minor_version_0)
{
    static const rule<old_world> rules[] = {
        {"7530 9.1.7", "0 comes behind the largest number of an owner", nfsstat4::ok,
         [](old_world& w) -> said {
             w.client.connect();
             w.client.seqid = 0xfffffffe;
             const auto file = w.client.open(w.client.creating("f"));
             BOOST_TEST(file.status == nfsstat4::ok);
             return w.client.confirm(file).status;
         }},
        {"7530 16.11.5", "LOCKT of a link", nfsstat4::inval,
         [](old_world& w) -> said {
             w.client.connect();
             const auto link = w.handle_of_link();
             LOCKT4args args;
             args.length = 1;
             args.owner.clientid = w.client.id;
             return w.compound(PUTFH4args{std::span<const std::byte>(link)}, args).status();
         }},
        {"7530 16.10.5", "LOCK of a link", nfsstat4::inval,
         [](old_world& w) -> said {
             w.client.connect();
             const auto file = w.client.ready(w.client.creating("f"));
             const auto link = w.handle_of_link();
             return w.compound(PUTFH4args{std::span<const std::byte>(link)}, w.client.locking(file, 0, 1))
                 .status();
         }},
        {"7530 16.14.5", "LOOKUPP of a link", nfsstat4::notdir,
         [](old_world& w) -> said {
             w.client.connect();
             const auto link = w.handle_of_link();
             return w.compound(PUTFH4args{std::span<const std::byte>(link)}, LOOKUPP4args()).status();
         }},
        {"7530 16.23.5", "READ of a link", nfsstat4::inval,
         [](old_world& w) -> said {
             w.client.connect();
             const auto link = w.handle_of_link();
             return w.compound(PUTFH4args{std::span<const std::byte>(link)}, READ4args{{}, 0, 1}).status();
         }},
        {"7530 16.25.5", "REMOVE of a file that its client denies others to write: nothing says whose it is",
         nfsstat4::ok,
         [](old_world& w) -> said {
             w.client.connect();
             OPEN4args denying = w.client.creating("f");
             denying.share_deny = share4::deny_write;
             w.client.ready(denying);
             return w.compound(PUTROOTFH4args(), LOOKUP4args{"export"}, REMOVE4args{"f"}).status();
         }},
        {"7530 16.36.5", "WRITE of a link", nfsstat4::inval,
         [](old_world& w) -> said {
             w.client.connect();
             const auto link = w.handle_of_link();
             return w
                 .compound(PUTFH4args{std::span<const std::byte>(link)},
                           WRITE4args{{}, 0, stable_how4::unstable, bytes_of("text")})
                 .status();
         }},
        {"7530 16.9.4", "LINK of a file that has no name any more", nfsstat4::noent,
         [](old_world& w) -> said {
             w.client.connect();
             const auto file = w.client.ready(w.client.creating("f"));
             BOOST_TEST(w.in_root(LOOKUP4args{"export"}, REMOVE4args{"f"}) == nfsstat4::ok);
             return w
                 .compound(PUTFH4args{file.fh()}, SAVEFH4args(), PUTROOTFH4args(), LOOKUP4args{"export"},
                           LINK4args{"g"})
                 .status();
         }},
        {"7530 16.12.3", "LOCKU in the pseudo file system", nfsstat4::bad_stateid,
         [](old_world& w) -> said {
             w.client.connect();
             const auto file = w.client.ready(w.client.creating("f"));
             const LOCK4res locked = w.client.lock(file, w.client.locking(file, 0, 1));
             BOOST_TEST_REQUIRE(locked.status == nfsstat4::ok);
             LOCKU4args args;
             args.seqid = ++w.client.lock_seqid;
             args.lock_stateid = locked.lock_stateid;
             args.length = 1;
             return w.in_root(args);
         }},
        {"7530 16.18.3", "OPEN_CONFIRM in the pseudo file system", nfsstat4::bad_stateid,
         [](old_world& w) -> said {
             w.client.connect();
             const auto file = w.client.open(w.client.creating("f"));
             return w.in_root(OPEN_CONFIRM4args{file.id, ++w.client.seqid});
         }},
        {"7530 16.2.3", "CLOSE in the pseudo file system", nfsstat4::bad_stateid,
         [](old_world& w) -> said {
             w.client.connect();
             const auto file = w.client.ready(w.client.creating("f"));
             return w.compound(PUTROOTFH4args(), CLOSE4args{++w.client.seqid, file.id}).status();
         }},
    };
    hold(rules);
}

BOOST_AUTO_TEST_SUITE_END()
