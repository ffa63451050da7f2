// SPDX-License-Identifier: Apache-2.0
// bulk<N>: the large opaque of a typed procedure's arguments or results. It travels beside the message, without a copy where the
// transport can do that: in a chunk over RDMA, gathered over a byte stream. RFC 8166 section 6 calls it a DDP-eligible data item.
#pragma once

#include <verbena/core/result.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/protocols/rpc/call.hpp>
#include <verbena/protocols/rpc/payload.hpp>
#include <verbena/protocols/xdr/codec.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#pragma GCC visibility push(default)

namespace verbena::rpc {

class client_transport;

/// opaque<Max> on the wire. The last member of a struct of arguments or of results, one in each. Move-only; shard-local.
///
/// Whoever sends it makes it from a payload. Whoever gets it finds it
///  - in results (client): the bytes are there, bytes();
///  - in arguments (server): pull() brings them. Until then they may still be with the caller, so what can refuse the call comes
///    first.
template<std::uint32_t Max>
class bulk {
public:
    static constexpr std::uint32_t limit = Max; ///< bytes

    bulk() = default;
    /// More than Max bytes are refused when they are sent, as are arguments that came and were not pulled: EMSGSIZE for a caller,
    /// SYSTEM_ERR from a program.
    bulk(payload bytes) noexcept : bytes_(std::move(bytes)) {}

    /// Bytes, whether they are here or not. At most Max in what came.
    std::size_t size() const noexcept { return awaited_ ? ref_.length : bytes_.size(); }
    /// What it was made from, or came in results. Empty in arguments.
    const payload& bytes() const noexcept { return bytes_; }
    /// Moves the bytes out.
    payload take() noexcept { return std::move(bytes_); }
    /// Brings the bytes of `c`'s arguments here, once. Completes when: call::pull() does. On cancel: as there. Errors: as
    /// there; a handler returns them as its own (typed_program::on()). Lifetime: `c` outlives the task. Shard: that of
    /// `c`.
    task<result<payload>> pull(call& c) const { return c.pull(ref_); }

private:
    friend struct xdr::codec<bulk>;

    payload bytes_;
    xdr::payload_ref ref_;
    bool awaited_ = false;
};

/// A copy of `bytes` in memory that the transport sends without another one. What is kept by a std::shared_ptr needs none: see payload. It counts as what `c` has in hand
/// (call::expect_results()). Completes when: there is memory, or buffer_pool::call_patience is over. On cancel: it ends, ENOMEM.
/// Errors: ENOMEM, at once for more than buffer_pool::max_size. Lifetime: `c` and `bytes` outlive the task. Shard: that of `c`.
task<result<payload>> copy_payload(call& c, std::span<const std::byte> bytes);
/// The same for an argument. It waits for memory as client_transport::acquire() does, without a limit. Lifetime: `server` and
/// `bytes` outlive the task. Shard: that of `server`.
task<result<payload>> copy_payload(client_transport& server, std::span<const std::byte> bytes);

namespace detail {

template<class T>
inline constexpr bool is_bulk = false;
template<std::uint32_t Max>
inline constexpr bool is_bulk<bulk<Max>> = true;

template<class T>
T& last_of(T& only) noexcept
{
    return only;
}
template<class T, class... More>
auto& last_of(T&, More&... more) noexcept
{
    return last_of(more...);
}

/// The bulk in `value`, which has one: the last member, or in it.
template<class T>
auto& bulk_in(T& value) noexcept
{
    if constexpr (is_bulk<T>)
        return value;
    else
        return xdr::detail::with_members(
            value, [](auto&... members) -> auto& { return bulk_in(last_of(members...)); });
}

} // namespace detail
} // namespace verbena::rpc

/// opaque<Max> (4.10): the length word in the message, the bytes beside it.
template<std::uint32_t Max>
struct verbena::xdr::codec<verbena::rpc::bulk<Max>> {
    static constexpr std::size_t min_size = 4;
    static constexpr std::size_t max_size = 4;
    static constexpr std::size_t payloads = 1;
    /// @name As of every codec
    /// encode() writes the length and notes the bytes as a payload item, decode() reads the length. Where bytes were promised that
    /// are not here, or more than Max, `out` overflows.
    /// @{
    static void encode(encoder& out, const rpc::bulk<Max>& value) noexcept
    {
        if (value.awaited_ || value.bytes_.size() > Max)
            return out.overflow();
        out.note_payload(static_cast<std::uint32_t>(value.bytes_.size()));
    }
    static void decode(decoder& in, rpc::bulk<Max>& value) noexcept
    {
        value.ref_ = in.payload(Max);
        value.awaited_ = true;
    }
    /// @}
    /// For a caller: gives what decode() met its bytes.
    static const payload_ref& awaited(const rpc::bulk<Max>& value) noexcept { return value.ref_; }
    /// Those bytes, when they are here.
    static void arrived(rpc::bulk<Max>& value, rpc::payload bytes) noexcept
    {
        value.bytes_ = std::move(bytes);
        value.awaited_ = false;
    }
};

#pragma GCC visibility pop
