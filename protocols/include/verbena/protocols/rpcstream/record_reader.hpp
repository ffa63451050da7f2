// SPDX-License-Identifier: Apache-2.0
// Turns the bytes of a stream into records, in the buffers they were received in.
//
// A record of one fragment, which is what clients send, is never copied as a whole: either it lies in
// one buffer, or, when it is large, in two, the second one sized for what was missing. What is copied:
//  - the part in hand of a small record (up to max_copied_record) that a buffer ends in;
//  - records of several fragments, joined in a buffer of their own.
#pragma once

#include <verbena/core/memory/buffer.hpp>
#include <verbena/protocols/rpc/message.hpp>
#include <verbena/protocols/rpcstream/record_marking.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

#pragma GCC visibility push(default)

namespace verbena::rpc {

/// A whole RPC message in one or two pieces, with the leases that keep them alive. A message of more
/// than record_reader::max_copied_record bytes has at least record_reader::head_size in the first piece.
struct record {
    record() = default;
    lease first_owner, second_owner;
    std::span<const std::byte> first, second;
    std::size_t copied = 0; ///< bytes at its front that were copied in user space

    std::size_t size() const noexcept { return first.size() + second.size(); }
};

/// Decides who may hold a buffer larger than the usual one for a record that is still on its way.
class large_record_share {
public:
    /// False: not now.
    virtual bool take(std::size_t bytes) noexcept = 0;
    /// What take() took, when the record is complete or the reader gives up.
    virtual void give_back(std::size_t bytes) noexcept = 0;

protected:
    ~large_record_share() = default;
};

/// Puts the records of one stream together, from bytes that its owner receives. Shard-local, or used from one
/// thread.
class record_reader {
public:
    /// Limits of one stream.
    struct options {
        std::size_t max_record = 0;                       ///< bytes; a longer record ends the stream
        std::size_t receive_size = std::size_t(64) << 10; ///< of the buffers that calls are received in
        large_record_share* share = nullptr;              ///< nullptr: no limit; outlives the reader
    };
    /// What stays contiguous of a large message: the RPC header and the arguments before a payload.
    static constexpr std::size_t head_size = 1024;
    static_assert(head_size >= max_call_header_size + 128);
    /// Messages up to this size are contiguous.
    static constexpr std::size_t max_copied_record = std::size_t(16) << 10;
    /// Fragments of one record.
    static constexpr std::uint32_t max_fragments = 4096;

    /// What next() has done.
    enum class status : std::uint8_t {
        record,             ///< a record was put out
        incomplete,         ///< receive more
        no_memory,          ///< call it again when there is memory
        too_long,           ///< a record over max_record was announced: the stream can't go on
        too_many_fragments, ///< likewise
    };

    /// `pool`, and options::share, outlive it.
    record_reader(buffer_pool& pool, const options& limits) noexcept : pool_(pool), options_(limits) {}
    ~record_reader() { give_up(); }
    record_reader(const record_reader&) = delete;

    /// Where the next bytes belong, after next() said incomplete; empty if there is no memory for them, or
    /// options::share refused.
    std::span<std::byte> space() noexcept;
    /// Notes that `n` bytes arrived there.
    void received(std::size_t n) noexcept { filled_ += n; }
    /// Takes the next record out; out is changed only when there is one.
    status next(record& out) noexcept;

    /// True if bytes are here that belong to no record put out: part of one, or, before next() said
    /// incomplete, whole ones.
    bool holds_bytes() const noexcept
    {
        return state_ != state::header || fragments_ != 0 || filled_ != parsed_;
    }
    /// Gives back what the record on its way holds. Nothing may be received any more.
    void give_up() noexcept
    {
        front_.reset();
        current_.reset();
        joined_.reset();
        give_share_back();
    }
    /// Gives the buffer back if nobody needs it, so that an idle stream has none.
    void release_idle() noexcept
    {
        if (current_ && !holds_bytes() && current_.unique())
            current_.reset();
    }

private:
    enum class state : std::uint8_t { header, record, fragment };

    std::byte* at(std::size_t offset) const noexcept { return current_.data() + offset; }
    std::size_t in_hand() const noexcept { return filled_ - parsed_; }
    bool switch_buffer(std::size_t size, std::size_t keep) noexcept;
    bool take_share(std::size_t size) noexcept;
    void give_share_back() noexcept;
    status begin_fragment() noexcept;
    void take_record(record& out) noexcept;
    void take_joined(record& out) noexcept;
    bool join(std::span<const std::byte> bytes) noexcept;

    buffer_pool& pool_;
    options options_;
    state state_ = state::header;
    lease current_; // bytes [parsed_, filled_) of it are not taken yet
    std::size_t parsed_ = 0;
    std::size_t filled_ = 0;
    std::size_t length_ = 0; // of the record, or what is missing of the fragment
    // The first piece of a large record, in the buffer before current_.
    lease front_;
    std::span<const std::byte> front_bytes_;
    std::size_t share_taken_ = 0;
    std::size_t copied_ = 0; // of the record, into current_
    // A record of several fragments.
    lease joined_;
    std::size_t joined_size_ = 0;
    std::uint32_t fragments_ = 0;
    bool last_fragment_ = false;
};

} // namespace verbena::rpc

#pragma GCC visibility pop
