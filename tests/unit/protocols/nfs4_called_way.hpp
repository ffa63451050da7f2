// SPDX-License-Identifier: Apache-2.0
// The server's way to a client of ours: its calls are served by the client's callback_service, unless a test wants them lost.
#pragma once

#include "memory_call.hpp"

#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/nfs/client/v4/callback_service.hpp>

#include <chrono>
#include <cstring>
#include <vector>

namespace verbena::test {

class called_way final : public rpc::reverse_channel {
public:
    called_way(nfs::v4::callback_service& service, buffer_pool& pool) : service_(service), pool_(pool) {}

    task<result<rpc::reply>> call(rpc::request& r) override
    {
        if (!is_open)
            co_return error(std::errc::not_connected);
        ++calls;
        const auto bytes = r.message().bytes();
        xdr::decoder in(bytes);
        rpc::call_header header;
        BOOST_TEST_REQUIRE((decode(in, header) == rpc::call_verdict::good));
        signed_as = header.credential.flavor;
        memory_call c(pool_, from_);
        c.take({bytes.begin(), bytes.end()});
        const bool lost_on_its_way = loses_calls > 0;
        bool replies = false;
        if (lost_on_its_way)
            --loses_calls;
        else
            replies = co_await service_.dispatch(c);
        if (!replies || loses_answers > 0) {
            loses_answers -= !lost_on_its_way && loses_answers > 0 ? 1 : 0;
            co_await sleep_for(std::chrono::seconds(10));
            co_return error(std::errc::timed_out);
        }
        (void)c.reply();
        const auto said = c.whole_reply();
        lease block = pool_.try_acquire(1024);
        std::memcpy(block.data(), said.data(), said.size());
        const std::span<const std::byte> written(block.data(), said.size());
        rpc::reply answer(std::move(block), written, {}, false);
        (void)answer.decode_header();
        co_return std::move(answer);
    }
    task<lease> acquire(std::size_t size) override { co_return co_await pool_.acquire(size); }
    bool open() const noexcept override { return is_open; }

    bool is_open = true;
    int calls = 0;
    rpc::auth_flavor signed_as = rpc::auth_flavor::none; ///< the last one
    int loses_calls = 0;
    int loses_answers = 0;

private:
    nfs::v4::callback_service& service_;
    buffer_pool& pool_;
    rpc::peer from_{"127.0.0.1", "127.0.0.1:2049", "tcp", 2049};
};

} // namespace verbena::test
