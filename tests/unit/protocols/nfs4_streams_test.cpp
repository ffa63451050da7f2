// SPDX-License-Identifier: Apache-2.0
// Arguments behind a payload, as GETATTR stands behind WRITE: over a stream they lie elsewhere than what stands in front of it.
#include "rpc_server.hpp"

BOOST_AUTO_TEST_SUITE(nfs4_streams_test)

using namespace verbena;
using namespace verbena::test;

namespace {

/// Takes an opaque<>, a word, an opaque<> and a word; returns both lengths and the words.
class two_payloads final : public rpc::program {
public:
    std::uint32_t number() const noexcept override { return 0x20000001; }
    std::uint32_t low_version() const noexcept override { return 9; }
    std::uint32_t high_version() const noexcept override { return 9; }
    std::string_view name() const noexcept override { return "two"; }
    std::string_view procedure_name(std::uint32_t, std::uint32_t) const noexcept override { return "TWO"; }
    bool non_idempotent(std::uint32_t, std::uint32_t) const noexcept override { return false; }
    task<rpc::outcome> serve(rpc::call& c) override
    {
        std::array<std::uint32_t, 4> found{};
        for (std::size_t i = 0; i < 4; i += 2) {
            const auto ref = c.args().payload(1 << 20);
            if (ref.external) {
                const auto data = co_await c.pull(ref);
                if (!data)
                    co_return rpc::outcome::drop;
                found[i] = static_cast<std::uint32_t>(data->size());
            } else {
                found[i] = static_cast<std::uint32_t>(ref.inline_bytes.size());
            }
            found[i + 1] = c.args().u32();
        }
        if (!c.args().at_end())
            co_return rpc::outcome::garbage_args;
        for (const std::uint32_t word : found)
            c.results().u32(word);
        co_return rpc::outcome::success;
    }
};

} // namespace

BOOST_AUTO_TEST_CASE(what_stands_behind_a_payload_is_read)
{
    served_streams streams;
    two_payloads program;
    streams.calls.add(program);
    auto client = streams.connect();
    // In one piece; in two, the payload across them; and so long that it comes in buffers of its own.
    for (const std::uint32_t size : {0u, 101u, 20'000u, 70'001u, 1u << 20}) {
        bytes arguments = opaque(size);
        append_u32(arguments, 0x1234);
        append(arguments, opaque(7));
        append_u32(arguments, 0x5678);
        streams.send(client, framed(call_of(size, 1, arguments, 9)));
        const bytes reply = streams.receive(client, 4 + 24 + 16);
        BOOST_TEST_REQUIRE(reply.size() == 44u);
        BOOST_TEST(xdr::load_u32(reply.data() + 28) == size);
        BOOST_TEST(xdr::load_u32(reply.data() + 32) == 0x1234u);
        BOOST_TEST(xdr::load_u32(reply.data() + 36) == 7u);
        BOOST_TEST(xdr::load_u32(reply.data() + 40) == 0x5678u);
    }
}

BOOST_AUTO_TEST_SUITE_END()
