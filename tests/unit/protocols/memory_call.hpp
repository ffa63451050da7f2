// SPDX-License-Identifier: Apache-2.0
// Calls that never leave memory: what a transport would hand to the dispatcher, and what it would send.
#pragma once

#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/rpc/auth_sys.hpp>
#include <verbena/protocols/rpc/dispatcher.hpp>
#include <verbena/protocols/rpc/reverse_channel.hpp>

#include <boost/test/unit_test.hpp>

#include <climits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace verbena::test {

/// One call. Its message is written by the constructor's function; the reply stands in reply().
class memory_call final : public rpc::call {
public:
    memory_call(buffer_pool& pool, const rpc::peer& from)
        : from_(from),
          space_(std::make_unique_for_overwrite<std::byte[]>(largest)),
          call_(space_.get(), largest),
          block_(inline_results)
    {
        buffers_ = &pool;
        peer_ = &from_;
    }
    xdr::encoder begin(std::uint32_t program, std::uint32_t version, std::uint32_t procedure,
                       const rpc::auth_sys* user)
    {
        std::array<std::byte, rpc::max_auth_body> body;
        rpc::call_header header;
        header.xid = xid;
        header.program = program;
        header.version = version;
        header.procedure = procedure;
        if (user != nullptr) {
            xdr::encoder credential(body);
            encode(credential, *user);
            header.credential.flavor = rpc::auth_flavor::sys;
            header.credential.body = std::span(body).first(credential.size());
        }
        xdr::encoder out(call_);
        encode(out, header);
        return out;
    }
    void end(const xdr::encoder& written)
    {
        BOOST_REQUIRE(written.ok());
        size_ = written.size();
        rewind();
    }
    /// The argument's payload, which `written` announced, comes in a Read chunk.
    void end(const xdr::encoder& written, std::vector<std::byte> chunk)
    {
        end(written);
        BOOST_REQUIRE(written.payloads().size() == 1);
        chunk_ = std::move(chunk);
        position_ = written.payloads().front().position;
        in_chunk_ = true;
        rewind();
    }
    /// A whole message, as a client made it, in place of begin() and end().
    void take(std::vector<std::byte> message)
    {
        taken_ = std::move(message);
        call_ = taken_;
        size_ = call_.size();
        rewind();
    }
    /// What reply() has read, from its XID on.
    std::span<const std::byte> whole_reply() const noexcept { return whole_; }
    /// Makes the call as good as new.
    void rewind()
    {
        const std::span<const std::byte> message(call_.data(), size_);
        args_ = in_chunk_
                    ? xdr::decoder(message,
                                   xdr::external_item{position_, static_cast<std::uint32_t>(chunk_.size())})
                    : xdr::decoder(message);
        results_ = xdr::encoder(block_);
        attached_.clear();
    }
    /// Changes a word of the message, and makes the call as good as new.
    void rewrite(std::size_t offset, std::uint32_t word)
    {
        BOOST_REQUIRE(offset + 4 <= size_);
        xdr::store_u32(call_.data() + offset, word);
        rewind();
    }
    /// Of the message only so many bytes lie in one piece, as over a stream.
    void split_at(std::size_t bytes)
    {
        args_ = xdr::decoder(std::span<const std::byte>(call_.data(), std::min(bytes, size_)), size_);
    }
    /// The message comes in two pieces, of which the first one has `border` bytes: join_arguments() joins them.
    void in_two_pieces(std::size_t border)
    {
        BOOST_REQUIRE(border <= size_);
        comes_in_two_ = true;
        const std::span<const std::byte> message(call_.data(), size_);
        args_ = xdr::decoder(message.first(border), message.subspan(border), 0);
    }
    /// Bytes of the message.
    std::size_t size() const noexcept { return size_; }
    void cut_short(std::size_t bytes)
    {
        size_ -= bytes;
        rewind();
    }
    /// The results, behind the header of a successful reply.
    xdr::decoder reply()
    {
        whole_.clear();
        const auto put = [this](std::span<const std::byte> bytes) {
            whole_.insert(whole_.end(), bytes.begin(), bytes.end());
        };
        BOOST_TEST(results_.payloads().size() == attached_.size());
        results_.in_order(put, [&](std::size_t i) {
            BOOST_TEST(results_.payloads()[i].length == attached_[i].size());
            for (const auto piece : attached_[i].bytes.pieces())
                put(piece);
            whole_.resize(xdr::padded(whole_.size()));
        });
        xdr::decoder in(whole_);
        decode(in, header_of_reply);
        return in;
    }
    rpc::reply_header header_of_reply;
    std::uint32_t xid = 0x1234;
    int pulls = 0;
    int joins = 0;
    bool no_memory_to_join = false;
    std::optional<std::errc> pull_fails;
    bool is_done = false; ///< for who lets it run beside others
    bool no_memory = false;
    int reserves = INT_MAX;          ///< how often there is memory for results
    std::uint64_t most = UINT32_MAX; ///< bytes of a data item that there is room for

    std::shared_ptr<rpc::reverse_channel> way; ///< to the caller

    std::uint64_t most_result() const noexcept override { return most; }
    std::shared_ptr<rpc::reverse_channel> reverse() override { return way; }

    task<result<rpc::payload>> pull(xdr::payload_ref ref) override
    {
        ++pulls;
        if (pull_fails)
            co_return error(*pull_fails);
        rpc::payload got;
        if (comes_in_two_) {
            got.append(lease(), call_.subspan(ref.position, ref.length));
        } else if (ref.external) {
            // Two pieces, as large payloads come over a stream.
            const auto all = std::span<const std::byte>(chunk_).first(ref.length);
            got.append(lease(), all.first(all.size() / 2));
            got.append(lease(), all.subspan(all.size() / 2));
        } else {
            got.append(lease(), ref.inline_bytes);
        }
        co_return got;
    }
    task<result<void>> join_arguments(std::size_t at) override
    {
        if (!comes_in_two_ || at > size_)
            co_return error(std::errc::message_size, "arguments in one piece", at);
        ++joins;
        if (no_memory_to_join)
            co_return error(std::errc::not_enough_memory, "no memory", at);
        args_ = xdr::decoder(std::span<const std::byte>(call_.data() + at, size_ - at), {}, at);
        co_return result<void>();
    }
    task<bool> reserve_results(std::size_t size) override
    {
        if (no_memory)
            co_return false;
        if (size > results_.room()) {
            if (reserves-- <= 0)
                co_return false;
            std::vector<std::byte> larger(results_.size() + size);
            results_.move_to(larger);
            block_ = std::move(larger);
        }
        co_return true;
    }

private:
    static constexpr std::size_t largest = 1 << 20;

    rpc::peer from_;
    std::unique_ptr<std::byte[]> space_; // not filled: that was half of what a call of a test took
    std::vector<std::byte> taken_;
    std::span<std::byte> call_; // of one of the two
    std::vector<std::byte> block_;
    std::vector<std::byte> whole_;
    std::vector<std::byte> chunk_;
    std::size_t size_ = 0;
    std::size_t position_ = 0;
    bool in_chunk_ = false;
    bool comes_in_two_ = false;
};

/// Programs behind a dispatcher on a reactor of their own, and who calls.
class memory_server {
public:
    memory_server() : shard(make()), pool(budget, shard.get()), dispatcher(*shard) {}

    /// False if no reply is to be sent.
    bool dispatch(memory_call& c) { return run_until_complete(*shard, dispatcher.dispatch(c)); }

    std::unique_ptr<reactor> shard;
    memory_budget budget{std::size_t(64) << 20};
    buffer_pool pool;
    rpc::service_dispatcher dispatcher;
    rpc::peer from{"127.0.0.1", "127.0.0.1:700", "tcp", 700};
    std::optional<rpc::auth_sys> user;

private:
    static std::unique_ptr<reactor> make()
    {
        auto made = reactor::create({});
        BOOST_REQUIRE_MESSAGE(made, (made ? std::string() : made.error().message()));
        return std::move(*made);
    }
};

} // namespace verbena::test
