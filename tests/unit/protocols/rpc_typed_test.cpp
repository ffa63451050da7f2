// SPDX-License-Identifier: Apache-2.0
// Programs from C++ structs: the same program and the same calls over each transport, and what strangers send.
#include <boost/test/unit_test.hpp>

#include "bytes.hpp"
#include "memory_call.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/rpc/duplicate_request_cache.hpp>
#include <verbena/protocols/rpc/typed_program.hpp>
#include <verbena/protocols/rpcrdma/requester.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>
#include <verbena/protocols/rpcstream/stream_client.hpp>
#include <verbena/protocols/rpcstream/stream_server.hpp>
#include <verbena/testing/world.hpp>
#include <verbena/transports/iwarp.hpp>
#include <verbena/transports/loop.hpp>
#include <verbena/transports/stream.hpp>

#include <cstdio>
#include <functional>
#include <map>

BOOST_AUTO_TEST_SUITE(rpc_typed_test)

using namespace verbena;
using namespace verbena::test;

namespace {

constexpr std::uint32_t most = std::uint32_t(1) << 20;

enum class trouble : std::uint32_t { none = 0, not_found = 1, read_only = 30 };
constexpr bool valid(trouble t)
{
    return t == trouble::none || t == trouble::not_found || t == trouble::read_only;
}
constexpr std::string_view to_string(trouble t)
{
    switch (t) {
    case trouble::none: return "done";
    case trouble::not_found: return "no such thing";
    case trouble::read_only: return "it can only be read";
    }
    return {};
}

struct item {
    xdr::text<20> name;
    std::optional<std::uint32_t> price;
};
struct sum_args {
    xdr::list<std::int32_t, 100> numbers;
};
struct sum_result {
    std::int64_t sum = 0;
};
struct many_args {
    std::uint32_t count = 0;
};
struct many_result {
    xdr::list<item, 500> items;
};
struct find_args {
    xdr::text<20> name;
};
struct store_args {
    xdr::text<20> name;
    bool refuse = false;
    rpc::bulk<most> data;
};
struct most_result {
    rpc::bulk<rpc::max_result_bulk> data;
};
struct fetch_result {
    std::uint32_t check = 0;
    rpc::bulk<most> data;
};

constexpr rpc::program_definition shop{"shop", 0x20000099, 3};
constexpr rpc::procedure<sum_args, sum_result> sum{shop, 1, "SUM", rpc::effect::none};
constexpr rpc::procedure<many_args, many_result> many{shop, 2, "MANY", rpc::effect::none};
constexpr rpc::procedure<find_args, item, trouble> find{shop, 3, "FIND", rpc::effect::none};
constexpr rpc::procedure<store_args, void, trouble> store{shop, 4, "STORE", rpc::effect::sets};
constexpr rpc::procedure<find_args, fetch_result, trouble> fetch{shop, 5, "FETCH", rpc::effect::none};
constexpr rpc::procedure<void, sum_result> count{shop, 6, "COUNT", rpc::effect::changes};
constexpr rpc::procedure<void, void> nothing{shop, 7, "NOTHING", rpc::effect::none};
constexpr rpc::procedure<many_args, sum_result> fail{shop, 8, "FAIL", rpc::effect::none};
constexpr rpc::procedure<void, sum_result> who{shop, 10, "WHO", rpc::effect::none};
constexpr rpc::procedure<many_args, void> breaks{shop, 11, "BREAKS", rpc::effect::changes};
constexpr rpc::procedure<many_args, most_result> most_of_all{shop, 12, "MOST", rpc::effect::none};
constexpr rpc::procedure<many_args, fetch_result, trouble> take{shop, 13, "TAKE", rpc::effect::changes};
constexpr rpc::procedure<store_args, void, trouble> send{shop, 14, "SEND", rpc::effect::changes};
constexpr rpc::procedure<void, void> unserved{shop, 63, "UNSERVED", rpc::effect::none};

std::uint32_t check_of(std::span<const std::byte> bytes)
{
    std::uint32_t check = 1;
    for (const std::byte b : bytes)
        check = check * 31 + std::to_integer<std::uint32_t>(b);
    return check;
}
std::vector<std::byte> joined(const rpc::payload& p)
{
    std::vector<std::byte> all;
    for (const auto piece : p.pieces())
        all.insert(all.end(), piece.begin(), piece.end());
    return all;
}
std::vector<std::byte> pattern(std::size_t size)
{
    std::vector<std::byte> bytes(size);
    for (std::size_t i = 0; i < size; ++i)
        bytes[i] = std::byte(i * 7 + i / 256);
    return bytes;
}

// A handler of each form.
class shop_program final : public rpc::typed_program {
public:
    shop_program() : typed_program(shop)
    {
        on(sum, [](const sum_args& a) {
            sum_result r;
            for (const std::int32_t n : a.numbers)
                r.sum += n;
            return r;
        });
        on(many, [](many_args a) -> task<many_result> {
            many_result r;
            for (std::uint32_t i = 0; i < a.count; ++i)
                r.items.push_back(
                    {"item " + std::to_string(i), i % 2 ? std::optional<std::uint32_t>(i) : std::nullopt});
            co_return r;
        });
        on(take, [this](const many_args& a) {
            ++counted;
            auto bytes = std::make_shared<std::vector<std::byte>>(pattern(std::min(a.count, 200'000U)));
            return fetch_result{check_of(*bytes), rpc::payload(bytes, *bytes)};
        });
        on(find, [](const find_args& a) -> rpc::answer<item, trouble> {
            if (a.name == "cup")
                return item{"cup", 7};
            if (a.name == "odd")
                return trouble(77); // no value of the enum
            if (a.name == "empty")
                return trouble::none; // success without results
            return trouble::not_found;
        });
        on(store, &shop_program::keep);
        on(send, [this](rpc::call& c, const store_args& a) -> task<rpc::answer<void, trouble>> {
            ++begun;
            if (before_pull)
                before_pull();
            const auto bytes = co_await a.data.pull(c);
            if (!bytes)
                co_return bytes.error();
            ++pulled;
            co_return trouble::none;
        });
        on(fetch, &shop_program::give);
        on(count, [this] { return sum_result{++counted}; });
        on(most_of_all, [](rpc::call& c, many_args a) -> task<result<most_result>> {
            auto bytes = co_await rpc::copy_payload(c, pattern(a.count));
            if (!bytes)
                co_return bytes.error();
            co_return most_result{std::move(*bytes)};
        });
        on(breaks, [this](rpc::call& c, many_args a) -> result<void> {
            ++counted;
            if (a.count == 0)
                throw std::runtime_error("half done");
            if (a.count == 1)
                return error(std::errc::io_error);
            if (a.count == 3)
                return error(std::errc::connection_aborted, "of a connection of its own");
            c.refuse();
            throw std::runtime_error("not begun");
        });
        on(nothing, [](rpc::call& c) { from = std::string(c.from().transport); });
        on(who, [](rpc::call& c) -> result<sum_result> {
            if (c.who().is_anonymous())
                return error(make_error_code(rpc::auth_status::too_weak));
            return sum_result{c.who().uid()};
        });
        on(fail, [](many_args a) -> task<result<sum_result>> {
            if (a.count == 0)
                throw std::runtime_error("boom");
            if (a.count == 1)
                co_return error(std::errc::io_error, "the disk");
            if (a.count == 2)
                co_return error(make_error_code(rpc::accept_status::garbage_arguments));
            if (a.count == 3)
                co_return error(make_error_code(rpc::auth_status::too_weak));
            if (a.count == 4)
                co_return error(make_error_code(rpc::accept_status::procedure_unavailable));
            co_return sum_result{5};
        });
    }

    std::map<std::string, std::vector<std::byte>, std::less<>> kept;
    std::int64_t counted = 0;
    int begun = 0;
    int pulled = 0;
    std::function<void()> before_pull; // of SEND
    inline static std::string from;

private:
    task<trouble> keep(rpc::call& c, const store_args& a)
    {
        if (a.refuse)
            co_return trouble::read_only;
        auto bytes = co_await a.data.pull(c);
        if (!bytes)
            throw std::runtime_error("no bytes");
        ++pulled;
        kept[std::string(a.name.view())] = joined(*bytes);
        co_return trouble::none;
    }
    task<rpc::answer<fetch_result, trouble>> give(rpc::call& c, find_args a)
    {
        const auto at = kept.find(a.name.view());
        if (at == kept.end())
            co_return trouble::not_found;
        auto bytes = co_await rpc::copy_payload(c, at->second);
        if (!bytes)
            co_return bytes.error();
        co_return fetch_result{check_of(at->second), std::move(*bytes)};
    }
};

// The program behind tcp, iwarp or loop, and a client of it.
class world {
public:
    explicit world(std::string_view transport)
    {
        calls.add(program);
        if (transport == "tcp") {
            streams.emplace(*shard, buffers, calls);
            auto adopt = [this](net::unique_fd socket, const net::endpoint& peer) {
                streams->adopt(std::move(socket), peer);
            };
            tcp =
                stream::listener::open(*shard, net::endpoint::parse("127.0.0.1:0").value(), std::move(adopt))
                    .value();
            client = rpc::make_stream_client(*shard, buffers, tcp->local_url().substr(6)).value();
            return;
        }
        if (transport == "loop") {
            fabric = loop::make_fabric(*shard);
            server_device = fabric->make_context();
            client_device = fabric->make_context();
            listener = server_device->listen("server").value();
        } else {
            server_device = iwarp::make_context(*shard);
            listener = server_device->listen("127.0.0.1:0").value();
        }
        const std::string url = listener->local_url();
        tasks.spawn(
            [this] { return rpcrdma::serve(*server_device, *listener, buffers, calls, options, stats); });
        client = rpcrdma::make_requester(client_device ? *client_device : *server_device, buffers,
                                         url.substr(url.find("//") + 2), {}, &client_stats);
    }
    bool is_rdma() const { return bool(listener); }

    void run(const std::function<task<void>()>& body)
    {
        const auto all = [&]() -> task<void> {
            co_await body();
            co_await client->close();
            if (listener)
                listener->close();
            co_await tasks.join();
            if (streams)
                co_await streams->shut_down(shard->clock().now());
        };
        run_until_complete(*shard, all());
    }

    std::unique_ptr<reactor> shard = reactor::create().value();
    memory_budget budget{std::size_t(128) << 20};
    buffer_pool buffers{budget, shard.get()};
    rpc::duplicate_request_cache duplicates{1};
    rpc::service_dispatcher calls{*shard, &duplicates};
    shop_program program;
    std::optional<rpc::stream_server> streams;
    std::unique_ptr<stream::listener> tcp;
    std::unique_ptr<loop::fabric> fabric;
    std::unique_ptr<verbs::context> server_device, client_device;
    std::unique_ptr<verbs::listener> listener;
    rpcrdma::responder_options options;
    rpcrdma::responder_stats stats;
    rpcrdma::requester_stats client_stats;
    std::unique_ptr<rpc::client_transport> client;
    scope tasks{*shard};
};

void over_each(const std::function<task<void>(world&)>& body)
{
    for (const auto* transport : {"tcp", "iwarp", "loop"}) {
        BOOST_TEST_CONTEXT("over " << transport)
        {
            world w(transport);
            w.run([&] { return body(w); });
        }
    }
}

// No lines in the log while it lives.
struct quiet {
    quiet() { set_log_level(log_level::off); }
    ~quiet() { set_log_level(before); }
    log_level before = current_log_level();
};

// Hand-made arguments of the program, and the reply's words behind the XID.
struct by_hand {
    by_hand() { server.dispatcher.add(program); }
    std::string reply_to(std::uint32_t procedure, std::string_view arguments, std::uint32_t version = 3)
    {
        memory_call c(server.pool, server.from);
        xdr::encoder out = c.begin(shop.number, version, procedure, nullptr);
        for (const std::byte b : from_hex(arguments))
            out.reserve(1)[0] = b;
        c.end(out);
        if (!server.dispatch(c))
            return "nothing";
        return to_hex(c.results().bytes()).substr(9);
    }
    memory_server server;
    shop_program program;
};

const std::string accepted = "00000001 00000000 00000000 00000000 ";
const std::string success = accepted + "00000000";
const std::string unavailable = accepted + "00000003";
const std::string garbage = accepted + "00000004";
const std::string system_error = accepted + "00000005";

} // namespace

BOOST_AUTO_TEST_CASE(arguments_and_results_travel)
{
    over_each([](world& w) -> task<void> {
        const sum_args numbers{{1, 2, -10}}; // named, for g++ 12
        const auto three = co_await sum(*w.client, numbers);
        BOOST_REQUIRE(three.has_value());
        BOOST_TEST(three->sum == -7);
        sum_args full;
        while (full.numbers.try_push_back(1'000'000'000)) {
        }
        const auto large = co_await sum(*w.client, full);
        BOOST_REQUIRE(large.has_value());
        BOOST_TEST(large->sum == 100'000'000'000);
        const auto done = co_await nothing(*w.client);
        BOOST_TEST(done.has_value());
        BOOST_TEST(shop_program::from == w.client->name());
    });
}

// More than results() have, and over RDMA more than goes inline: room for them follows from the type.
BOOST_AUTO_TEST_CASE(results_have_room_up_to_their_limit)
{
    over_each([](world& w) -> task<void> {
        for (const std::uint32_t n : {0u, 1u, 20u, 500u}) {
            const auto got = co_await many(*w.client, {n});
            BOOST_REQUIRE(got.has_value());
            BOOST_REQUIRE(got->items.size() == n);
            for (std::uint32_t i = 0; i < n; ++i) {
                BOOST_TEST((got->items[i].name == "item " + std::to_string(i)));
                BOOST_TEST(got->items[i].price.has_value() == (i % 2 == 1));
            }
        }
        // Beyond the limit the handler's push_back throws.
        const quiet log;
        const auto none = co_await many(*w.client, {501});
        BOOST_TEST((!none && none.error() == make_error_code(rpc::accept_status::system_error)));
    });
}

BOOST_AUTO_TEST_CASE(errors_of_the_program_are_values_of_its_enum)
{
    over_each([](world& w) -> task<void> {
        const auto cup = co_await find(*w.client, {"cup"});
        BOOST_REQUIRE(cup.has_value());
        BOOST_TEST((cup->name == "cup"));
        BOOST_TEST(cup->price.value() == 7u);
        const auto none = co_await find(*w.client, {"pot"});
        BOOST_REQUIRE(!none.has_value());
        BOOST_TEST((none.error() == trouble::not_found));
        BOOST_TEST(!(none.error() == trouble::read_only));
        BOOST_TEST((rpc::error_as<trouble>(none.error()) == trouble::not_found));
        BOOST_TEST(none.error().message() == "FIND: no such thing");
        const std::string category = none.error().code().category().name();
        BOOST_TEST(category.ends_with("trouble"), category);
        BOOST_TEST((rpc::error_as<trouble>(error(std::errc::io_error)) == trouble::none));
    });
}

BOOST_AUTO_TEST_CASE(a_bulk_travels_beside_the_message)
{
    over_each([](world& w) -> task<void> {
        std::uint64_t moved = 0;
        for (const std::size_t size :
             {std::size_t(0), std::size_t(1), std::size_t(100), std::size_t(4097), std::size_t(most)}) {
            BOOST_TEST_CONTEXT(size << " bytes")
            {
                const auto bytes = pattern(size);
                auto data = co_await rpc::copy_payload(*w.client, bytes);
                BOOST_REQUIRE(data.has_value());
                store_args args{"it", false, std::move(*data)};
                const auto stored = co_await store(*w.client, std::move(args));
                BOOST_TEST(stored.has_value());
                BOOST_TEST((w.program.kept["it"] == bytes));
                const auto back = co_await fetch(*w.client, {"it"});
                BOOST_REQUIRE(back.has_value());
                BOOST_TEST(back->check == check_of(bytes));
                BOOST_TEST(back->data.size() == size);
                BOOST_TEST((joined(back->data.bytes()) == bytes));
                moved += size;
            }
        }
        if (w.is_rdma()) { // as chunks; what is small goes inline in calls
            BOOST_TEST(w.stats.read_chunk_bytes.value() == 4097 + most);
            BOOST_TEST(w.stats.write_chunk_bytes.value() == moved);
        }
        // A client offers no more room than it is told.
        const quiet log;
        const auto less = co_await fetch(*w.client, {"it"}, {.max_bulk = 4096});
        BOOST_REQUIRE(!less.has_value());
        const auto why = w.is_rdma() ? std::errc::value_too_large : std::errc::message_size;
        BOOST_TEST((less.error() == why), less.error().message());
        const auto none = co_await fetch(*w.client, {"that"});
        BOOST_TEST((!none && none.error() == trouble::not_found));
    });
}

BOOST_AUTO_TEST_CASE(the_largest_results_that_compile_travel)
{
    over_each([](world& w) -> task<void> {
        const auto got = co_await most_of_all(*w.client, {rpc::max_result_bulk});
        BOOST_REQUIRE(got.has_value());
        BOOST_TEST((joined(got->data.bytes()) == pattern(rpc::max_result_bulk)));
    });
}

BOOST_AUTO_TEST_CASE(what_refuses_a_call_comes_before_its_bulk)
{
    over_each([](world& w) -> task<void> {
        auto data = co_await rpc::copy_payload(*w.client, pattern(100'000));
        store_args args{"it", true, std::move(*data)};
        const auto stored = co_await store(*w.client, std::move(args));
        BOOST_TEST((!stored && stored.error() == trouble::read_only));
        BOOST_TEST(w.program.pulled == 0);
        BOOST_TEST(w.stats.read_chunk_bytes.value() == 0u);
    });
}

BOOST_AUTO_TEST_CASE(what_its_type_does_not_allow_is_not_sent)
{
    world w("tcp");
    w.run([&]() -> task<void> {
        auto data = co_await rpc::copy_payload(*w.client, pattern(most + 1));
        BOOST_REQUIRE(data.has_value());
        store_args args{"it", false, std::move(*data)};
        const auto stored = co_await store(*w.client, std::move(args));
        BOOST_TEST((!stored && stored.error() == std::errc::message_size));
        BOOST_TEST(std::string(stored.error().context()) == "STORE");
        BOOST_TEST(!w.client->answered());
    });
}

BOOST_AUTO_TEST_CASE(errors_of_the_rpc_layer_are_as_ever)
{
    over_each([](world& w) -> task<void> {
        const auto gone = co_await unserved(*w.client);
        BOOST_TEST((!gone && gone.error() == make_error_code(rpc::accept_status::procedure_unavailable)));
        BOOST_TEST(gone.error().message().starts_with("UNSERVED: "), gone.error().message());
        constexpr rpc::program_definition next{"shop", shop.number, 4};
        constexpr rpc::procedure<void, void> later{next, 1, "LATER", rpc::effect::none};
        const auto other = co_await later(*w.client);
        BOOST_TEST((!other && other.error() == make_error_code(rpc::accept_status::program_mismatch)));
    });
}

BOOST_AUTO_TEST_CASE(a_credential_goes_with_the_call_that_has_one)
{
    over_each([](world& w) -> task<void> {
        rpc::auth_sys user;
        user.uid = 1234;
        std::array<std::byte, rpc::max_auth_body> body;
        xdr::encoder out(body);
        encode(out, user);
        const auto known = co_await who(*w.client, {.credential = {rpc::auth_flavor::sys, out.bytes()}});
        BOOST_TEST((known && known->sum == 1234));
        const auto unknown = co_await who(*w.client);
        BOOST_TEST((!unknown && unknown.error() == make_error_code(rpc::auth_status::too_weak)));
    });
}

namespace {
enum class own_code { ok, wrong };
class own_category final : public std::error_category {
public:
    const char* name() const noexcept override { return "own"; }
    std::string message(int) const override { return "wrong"; }
};
constexpr bool valid(own_code c) { return c <= own_code::wrong; }
constexpr std::string_view to_string(own_code) { return "wrong"; }
std::error_code make_error_code(own_code c)
{
    static const own_category category;
    return {int(c), category};
}
} // namespace
} // namespace rpc_typed_test
template<>
struct std::is_error_code_enum<rpc_typed_test::own_code> : std::true_type {};
namespace rpc_typed_test {

BOOST_AUTO_TEST_CASE(an_enum_that_is_an_error_code_keeps_its_category)
{
    const error e(rpc::error_code_of(own_code::wrong));
    BOOST_TEST((e == own_code::wrong));
    BOOST_TEST((e == make_error_code(own_code::wrong)));
    BOOST_TEST((rpc::error_as<own_code>(e) == own_code::wrong));
}

// As that of a module has, whose hidden names are not the program's.
BOOST_AUTO_TEST_CASE(an_error_of_another_copy_of_the_category_is_the_same_error)
{
    class copy final : public std::error_category {
    public:
        const char* name() const noexcept override { return rpc::category_of<trouble>().name(); }
        std::string message(int) const override { return "copied"; }
    };
    const copy category;
    const error e(std::error_code(1, category));
    BOOST_TEST((e == trouble::not_found));
    BOOST_TEST(!(e == trouble::read_only));
    BOOST_TEST((rpc::error_as<trouble>(e) == trouble::not_found));
    BOOST_TEST(!(error(std::error_code(1, std::generic_category())) == trouble::not_found));
    BOOST_TEST(!(error(rpc::error_code_of(trouble::not_found)) == own_code::wrong));
}

BOOST_AUTO_TEST_CASE(what_a_handler_fails_with_is_what_the_rpc_layer_has_for_it)
{
    const log_level before = current_log_level();
    set_log_level(log_level::info);
    std::string lines;
    set_log_capture(
        [](void* to, std::string_view line) { static_cast<std::string*>(to)->append(line).append("\n"); },
        &lines);
    by_hand s;
    BOOST_TEST(s.reply_to(8, "00000000") == system_error);
    BOOST_TEST(s.reply_to(8, "00000001") == system_error);
    BOOST_TEST(s.reply_to(8, "00000002") == garbage);
    BOOST_TEST(s.reply_to(8, "00000003") == "00000001 00000001 00000001 00000005");
    BOOST_TEST(s.reply_to(8, "00000004") == unavailable);
    BOOST_TEST(s.reply_to(8, "00000005") == success + " 00000000 00000005");
    // A status that is none, and success without results.
    BOOST_TEST(s.reply_to(3, "00000003 6f646400") == system_error);
    BOOST_TEST(s.reply_to(3, "00000005 656d7074 79000000") == system_error);
    set_log_capture(nullptr, nullptr);
    set_log_level(before);
    for (const auto* part :
         {"exception=boom", "program=shop procedure=FAIL client=127.0.0.1:700 call=4660 error=\"the disk: ",
          "procedure=FIND client=127.0.0.1:700 call=4660 error=\"it said"})
        BOOST_TEST(lines.find(part) != std::string::npos, part << " in " << lines);
}

BOOST_AUTO_TEST_CASE(words_on_the_wire)
{
    by_hand s;
    BOOST_TEST(s.reply_to(0, "") == success);
    BOOST_TEST(s.reply_to(1, "00000002 00000003 ffffffff") == success + " 00000000 00000002");
    BOOST_TEST(s.reply_to(3, "00000003 63757000") ==
               success + " 00000000 00000003 63757000 00000001 00000007");
    BOOST_TEST(s.reply_to(3, "00000003 706f7400") == success + " 00000001");
    BOOST_TEST(s.reply_to(4, "00000002 69740000 00000001 00000000") == success + " 0000001e");
    BOOST_TEST(s.reply_to(4, "00000002 69740000 00000000 00000003 61626300") == success + " 00000000");
    BOOST_TEST(s.reply_to(6, "") == success + " 00000000 00000001");
    BOOST_TEST(s.reply_to(7, "") == success);
}

BOOST_AUTO_TEST_CASE(garbage_is_refused_before_a_handler_sees_it)
{
    by_hand s;
    for (const auto* words : {"",                            // nothing where something is due
                              "00000002 00000003",           // a list that ends early
                              "00000065",                    // longer than its limit
                              "ffffffff",                    // much longer
                              "00000001 00000003 00000000"}) // a word too many
        BOOST_TEST(s.reply_to(1, words) == garbage, words);
    BOOST_TEST(s.reply_to(0, "00000000") == garbage);
    BOOST_TEST(s.reply_to(6, "00000000") == garbage);
    BOOST_TEST(s.program.counted == 0);
    for (const auto* words :
         {"00000015 61616161 61616161 61616161 61616161 61616161 61000000", // a name of 21 bytes
          "00000003 6375",                                                  // cut short
          "00000003 63757000 00000000"})
        BOOST_TEST(s.reply_to(3, words) == garbage, words);
    for (const auto* words : {"00000002 69740000 00000002 00000000",        // a bool of 2
                              "00000002 69740000 00000000 00100001",        // a bulk over its limit
                              "00000002 69740000 00000000 00000004 616263", // cut short
                              "00000002 69740000 00000000 00000001 61000000 00000000"})
        BOOST_TEST(s.reply_to(4, words) == garbage, words);
    BOOST_TEST(s.program.pulled == 0);
    BOOST_TEST(s.reply_to(9, "") == unavailable);
    BOOST_TEST(s.reply_to(63, "") == unavailable);
    BOOST_TEST(s.reply_to(0xffffffff, "") == unavailable);
    BOOST_TEST(s.reply_to(1, "00000000", 2) == accepted + "00000002 00000003 00000003");
}

// Whatever bytes come as arguments, the reply is one of RPC's, and handlers see nothing beyond their limits.
BOOST_AUTO_TEST_CASE(any_bytes_as_arguments_get_an_answer)
{
    by_hand s;
    const quiet log;
    std::uint32_t state = 1;
    const auto next = [&] { return state = state * 1664525 + 1013904223; };
    constexpr std::array<std::uint32_t, 8> likely = {0, 1, 2, 3, 4, 20, 21, 0xffffffff};
    for (int i = 0; i < 1000; ++i) {
        std::string words;
        for (std::uint32_t n = next() >> 29; n > 0; --n) {
            char word[9];
            std::snprintf(word, sizeof word, "%08x", (next() >> 28) < 12 ? likely[next() >> 29] : next());
            words += word;
        }
        const std::uint32_t number = next() >> 28;
        // Not that whose results have megabytes.
        const std::string reply = s.reply_to(number == 12 ? 15 : number, words);
        BOOST_TEST((reply.starts_with(accepted) || reply == "00000001 00000001 00000001 00000005"),
                   words << " got " << reply);
    }
}

BOOST_AUTO_TEST_CASE(no_room_for_results_is_a_system_error_before_anything_is_done)
{
    by_hand s;
    memory_call c(s.server.pool, s.server.from);
    xdr::encoder out = c.begin(shop.number, shop.version, 2, nullptr);
    out.u32(1);
    c.end(out);
    c.no_memory = true;
    BOOST_TEST(s.server.dispatch(c));
    BOOST_TEST(to_hex(c.results().bytes()).substr(9) == system_error);
}

// The client's side: a reply that its types don't allow.
namespace {
constexpr rpc::procedure<find_args, sum_result, trouble> find_as_sum{shop, 3, "FIND", rpc::effect::none};
constexpr rpc::procedure<find_args, find_args, trouble> find_as_name{shop, 3, "FIND", rpc::effect::none};
constexpr rpc::procedure<void, find_args> count_as_name{shop, 6, "COUNT", rpc::effect::none};
constexpr rpc::procedure<find_args, void, trouble> find_as_nothing{shop, 3, "FIND", rpc::effect::none};
enum class little : std::uint32_t { ok };
constexpr bool valid(little l) { return l == little::ok; }
constexpr std::string_view to_string(little) { return "ok"; }
constexpr rpc::procedure<find_args, item, little> find_with_little{shop, 3, "FIND", rpc::effect::none};
} // namespace

BOOST_AUTO_TEST_CASE(results_of_another_form_are_an_error)
{
    over_each([](world& w) -> task<void> {
        const auto a = co_await find_as_sum(*w.client, {"cup"}); // longer than it
        BOOST_TEST((!a && a.error() == std::errc::bad_message));
        const auto b = co_await find_as_name(*w.client, {"cup"});
        BOOST_TEST((!b && b.error() == std::errc::bad_message));
        const auto c = co_await find_as_nothing(*w.client, {"cup"});
        BOOST_TEST((!c && c.error() == std::errc::bad_message));
        const auto d = co_await count_as_name(*w.client); // shorter
        BOOST_TEST((!d && d.error() == std::errc::bad_message));
        const auto e =
            co_await find_with_little(*w.client, {"pot"}); // a status that this client does not know
        BOOST_TEST((!e && e.error() == std::errc::bad_message));
    });
}

BOOST_AUTO_TEST_CASE(a_repeat_of_what_changes_is_answered_from_the_cache)
{
    const auto shard = reactor::create().value();
    memory_budget budget(16 << 20);
    buffer_pool pool(budget, shard.get());
    rpc::duplicate_request_cache duplicates(1);
    rpc::service_dispatcher dispatcher(*shard, &duplicates);
    shop_program program;
    dispatcher.add(program);
    memory_call c(pool, {"127.0.0.1", "127.0.0.1:700", "tcp", 700});
    c.end(c.begin(shop.number, shop.version, 6, nullptr));
    for (int i = 0; i < 3; ++i) {
        c.rewind();
        BOOST_TEST(run_until_complete(*shard, dispatcher.dispatch(c)));
        BOOST_TEST(to_hex(c.results().bytes()).substr(9) == success + " 00000000 00000001");
    }
    BOOST_TEST(program.counted == 1);
    BOOST_TEST(!program.non_idempotent(3, 1));
    BOOST_TEST(!program.non_idempotent(3, 4));
    BOOST_TEST(program.repeats_in_turn(3, 4));
    BOOST_TEST(!program.repeats_in_turn(3, 6));
    BOOST_TEST(!program.non_idempotent(2, 6));
}

// A small bulk is kept with its reply. One that is lost with it is not worth a second run.
BOOST_AUTO_TEST_CASE(what_changes_and_gives_a_bulk_runs_once)
{
    const auto shard = reactor::create().value();
    memory_budget budget(16 << 20);
    buffer_pool pool(budget, shard.get());
    rpc::duplicate_request_cache duplicates(1);
    rpc::service_dispatcher dispatcher(*shard, &duplicates);
    shop_program program;
    dispatcher.add(program);
    for (const std::uint32_t size : {100U, 100'000U}) {
        program.counted = 0;
        memory_call c(pool, {"127.0.0.1", "127.0.0.1:700", "tcp", 700});
        xdr::encoder out = c.begin(shop.number, shop.version, 13, nullptr);
        out.u32(size);
        c.end(out);
        for (int i = 0; i < 3; ++i) {
            BOOST_TEST_CONTEXT(size << " bytes, time " << i)
            {
                c.rewind();
                BOOST_TEST(run_until_complete(*shard, dispatcher.dispatch(c)));
                const std::string words = to_hex(c.results().bytes()).substr(9);
                if (i == 0 || size == 100) {
                    BOOST_TEST(words.starts_with(success));
                    BOOST_REQUIRE(c.attached().size() == 1U);
                    BOOST_TEST((joined(c.attached()[0].bytes) == pattern(size)));
                } else {
                    BOOST_TEST(words == system_error);
                    BOOST_TEST(c.attached().empty());
                }
            }
        }
        BOOST_TEST(program.counted == 1);
    }
}

// As typed.md tells: what must not run twice then has a number of its own, which the program keeps with what it changed.
BOOST_AUTO_TEST_CASE(a_repeat_after_a_restart_runs_again)
{
    const auto shard = reactor::create().value();
    memory_budget budget(16 << 20);
    buffer_pool pool(budget, shard.get());
    shop_program program; // what it has outlives the server
    memory_call c(pool, {"127.0.0.1", "127.0.0.1:700", "tcp", 700});
    c.end(c.begin(shop.number, shop.version, 6, nullptr));
    for (int start = 1; start <= 2; ++start) {
        rpc::duplicate_request_cache duplicates(1);
        rpc::service_dispatcher dispatcher(*shard, &duplicates);
        dispatcher.add(program);
        for (int i = 0; i < 2; ++i) {
            c.rewind();
            BOOST_TEST(run_until_complete(*shard, dispatcher.dispatch(c)));
        }
        BOOST_TEST(program.counted == start);
    }
}

// Else a repeat would do the rest of it, or all of it, once more.
BOOST_AUTO_TEST_CASE(a_repeat_of_what_changed_something_and_failed_fails_as_it_did)
{
    const auto shard = reactor::create().value();
    memory_budget budget(16 << 20);
    buffer_pool pool(budget, shard.get());
    rpc::duplicate_request_cache duplicates(1);
    rpc::service_dispatcher dispatcher(*shard, &duplicates);
    shop_program program;
    dispatcher.add(program);
    const quiet log;
    const auto repeated = [&](std::uint32_t how) {
        program.counted = 0;
        memory_call c(pool, {"127.0.0.1", "127.0.0.1:700", "tcp", 700});
        xdr::encoder out = c.begin(shop.number, shop.version, 11, nullptr);
        out.u32(how);
        c.end(out);
        for (int i = 0; i < 3; ++i) {
            c.rewind();
            BOOST_TEST(run_until_complete(*shard, dispatcher.dispatch(c)));
            BOOST_TEST(to_hex(c.results().bytes()).substr(9) == system_error);
        }
        return program.counted;
    };
    BOOST_TEST(repeated(0) == 1);
    BOOST_TEST(repeated(1) == 1);
    BOOST_TEST(repeated(2) == 3); // it was refused
    BOOST_TEST(repeated(3) == 1);
}

namespace {

task<void> send_once(testing::world& w, testing::host& here, testing::host& there, shop_program& program)
{
    rpc::duplicate_request_cache duplicates(1);
    rpc::service_dispatcher calls(w.shard(), &duplicates);
    calls.add(program);
    const rpcrdma::responder_options options;
    rpcrdma::responder_stats stats;
    auto listener = here.device->listen(here.name).value();
    scope tasks(w.shard());
    tasks.spawn([&] { return rpcrdma::serve(*here.device, *listener, here.buffers, calls, options, stats); });
    const auto client = rpcrdma::make_requester(*there.device, there.buffers, here.name);
    auto bytes = co_await rpc::copy_payload(*client, pattern(200'000));
    BOOST_REQUIRE(bytes);
    store_args args{"cup", false, std::move(*bytes)};
    const auto done = co_await send(*client, std::move(args));
    BOOST_TEST(done.has_value(), (done ? std::string() : done.error().message()));
    BOOST_TEST(client->connections() == 2U);
    co_await client->close();
    listener->close();
    co_await tasks.join();
}

} // namespace

// Nothing was changed, and the caller calls again: so neither an answer nor a failure is kept for it.
BOOST_AUTO_TEST_CASE(a_call_whose_bulk_was_lost_with_its_connection_runs_again)
{
    std::string lines;
    set_log_capture(
        [](void* to, std::string_view line) { static_cast<std::string*>(to)->append(line).append("\n"); },
        &lines);
    {
        testing::world w;
        testing::host& client = w.add_host("client");
        shop_program program;
        program.before_pull = [&] {
            if (program.begun > 1)
                return;
            client.device->remove_device(); // and its connections with it
            client.device->return_device();
        };
        w.run(send_once(w, w.add_host("server"), client, program));
        BOOST_TEST(program.begun == 2);
        BOOST_TEST(program.pulled == 1);
        BOOST_TEST(w.left_over() == "");
    }
    set_log_capture(nullptr, nullptr);
    BOOST_TEST(lines.find("a procedure failed") == std::string::npos, lines);
}

BOOST_AUTO_TEST_CASE(names_and_errors_are_metrics)
{
    by_hand s;
    BOOST_TEST(s.program.procedure_name(3, 0) == "NULL");
    BOOST_TEST(s.program.procedure_name(3, 5) == "FETCH");
    BOOST_TEST(s.program.procedure_name(3, 63) == "");
    BOOST_TEST(s.program.procedure_name(2, 5) == "");
    BOOST_TEST(s.program.name() == "shop");
    metric_registry registry;
    const auto made = s.program.expose(registry);
    s.reply_to(3, "00000003 706f7400");
    s.reply_to(3, "00000003 706f7400");
    s.reply_to(3, "00000003 63757000");
    s.reply_to(4, "00000002 69740000 00000001 00000000");
    std::string seen;
    for (const auto& m : registry.collect()) {
        for (const auto& sample : m.samples) {
            seen += m.family.name;
            for (const auto& label : sample.labels)
                seen += "|" + label;
            seen += " " + std::to_string(int(sample.value)) + "\n";
        }
    }
    BOOST_TEST(seen == "verbena_rpc_program_errors_total|shop|3|FIND|no such thing 2\n"
                       "verbena_rpc_program_errors_total|shop|3|STORE|it can only be read 1\n");
}

BOOST_AUTO_TEST_CASE(statuses_have_counts_of_their_own_up_to_a_limit)
{
    rpc::detail::status_counts counts;
    for (std::uint32_t status = 1; status <= 20; ++status) {
        for (std::uint32_t i = 0; i < status; ++i)
            counts.add(status);
    }
    std::uint64_t others = 0;
    std::size_t seen = 0;
    counts.for_each([&](std::uint32_t status, const counter& calls) {
        ++seen;
        if (status == 0)
            others = calls.value();
        else
            BOOST_TEST(calls.value() == status);
    });
    BOOST_TEST(seen == 17u);
    BOOST_TEST(others == 17u + 18 + 19 + 20);
}

namespace {
constexpr rpc::program_definition other{"other", 0x20000098, 1};
constexpr rpc::procedure<void, void> of_other{other, 1, "A", rpc::effect::none};
constexpr rpc::procedure<void, void> same_number{other, 1, "B", rpc::effect::none};
struct of_another final : rpc::typed_program {
    of_another() : typed_program(shop)
    {
        on(of_other, [] {});
    }
};
struct twice final : rpc::typed_program {
    twice() : typed_program(other)
    {
        on(of_other, [] {});
        on(same_number, [] {});
    }
};
} // namespace

BOOST_AUTO_TEST_CASE(a_mistake_in_the_table_is_told_at_once)
{
    BOOST_CHECK_EXCEPTION(of_another(), std::logic_error, [](const std::logic_error& e) {
        return std::string(e.what()) == "shop: A is a procedure of another program, other";
    });
    BOOST_CHECK_EXCEPTION(twice(), std::logic_error, [](const std::logic_error& e) {
        return std::string(e.what()) == "other: procedure 1 has two handlers, of A and B";
    });
}

BOOST_AUTO_TEST_SUITE_END()
