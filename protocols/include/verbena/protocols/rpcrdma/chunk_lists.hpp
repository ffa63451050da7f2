// SPDX-License-Identifier: Apache-2.0
// The segments and chunks of an RPC-over-RDMA header (RFC 8166 3.4 and 4.3), held without a heap
// allocation within named limits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#pragma GCC visibility push(default)

namespace verbena::rpcrdma {

/// @name Limits of the chunk lists
/// A header over these is answered with ERR_CHUNK. RFC 8267 6.4.2 asks for 16 segments per chunk.
/// @{
inline constexpr std::size_t max_read_segments = 64;
inline constexpr std::size_t max_read_chunks = 16; ///< data items of one call, beside a Position-Zero chunk
inline constexpr std::size_t max_write_chunks = 8;
inline constexpr std::size_t max_write_segments = 64; ///< in all Write chunks together
inline constexpr std::size_t max_reply_segments = 64;
/// @}

/// A piece of the requester's memory. `handle` is its steering tag, `length` bytes.
struct segment {
    std::uint32_t handle; ///< steering tag
    std::uint32_t length; ///< bytes
    std::uint64_t offset; ///< as the requester's device addresses it

    friend bool operator==(const segment&, const segment&) = default;
};

/// A segment of a Read chunk: all segments with one position are one chunk.
struct read_segment {
    std::uint32_t position; ///< of the chunk in the call's XDR stream; 0: the call itself (RFC 8166 3.5.3)
    segment target;         ///< where the bytes are

    friend bool operator==(const read_segment&, const read_segment&) = default;
};

/// An array of at most Capacity elements. Copies only those in use.
template<class T, std::size_t Capacity>
class bounded_list {
public:
    // Leaves the elements uninitialised: clearing them would cost more than decoding a short header.
    bounded_list() noexcept {}
    bounded_list(const bounded_list& other) noexcept { assign(other); }
    bounded_list& operator=(const bounded_list& other) noexcept
    {
        if (this != &other)
            assign(other);
        return *this;
    }

    std::size_t size() const noexcept { return size_; }
    bool empty() const noexcept { return size_ == 0; }
    void clear() noexcept { size_ = 0; }
    /// False if the list is full.
    [[nodiscard]] bool push_back(const T& element) noexcept
    {
        if (size_ == Capacity)
            return false;
        elements_[size_++] = element;
        return true;
    }
    /// The elements, in order. Valid until the list changes.
    std::span<T> all() noexcept { return {elements_, size_}; }
    std::span<const T> all() const noexcept { return {elements_, size_}; }

private:
    void assign(const bounded_list& other) noexcept
    {
        size_ = other.size_;
        for (std::size_t i = 0; i < size_; ++i)
            elements_[i] = other.elements_[i];
    }

    std::size_t size_ = 0;
    T elements_[Capacity];
};

/// A call's Read list, all its chunks one after the other.
using read_list = bounded_list<read_segment, max_read_segments>;
/// Where a long reply goes: one chunk.
using reply_chunk = bounded_list<segment, max_reply_segments>;

/// A list of chunks, each an array of segments. A chunk of no segments is an "empty" one, which
/// asks for its result inline (RFC 8166 4.3.2.3).
class write_list {
public:
    std::size_t size() const noexcept { return ends_.size(); }
    bool empty() const noexcept { return ends_.empty(); }
    void clear() noexcept
    {
        ends_.clear();
        segments_.clear();
    }

    /// Starts a chunk; add_segment() adds to the chunk started last. False if the list is full.
    [[nodiscard]] bool add_chunk() noexcept { return ends_.push_back(segments_.size()); }
    /// Adds to the chunk started last. False if there is none, or no room.
    [[nodiscard]] bool add_segment(const segment& added) noexcept
    {
        if (ends_.empty() || !segments_.push_back(added))
            return false;
        ends_.all().back() = segments_.size();
        return true;
    }

    /// `index` is below size().
    std::span<segment> chunk(std::size_t index) noexcept
    {
        const std::size_t begin = begin_of(index);
        return segments_.all().subspan(begin, ends_.all()[index] - begin);
    }
    std::span<const segment> chunk(std::size_t index) const noexcept
    {
        const std::size_t begin = begin_of(index);
        return segments_.all().subspan(begin, ends_.all()[index] - begin);
    }
    /// All segments in order.
    std::span<const segment> segments() const noexcept { return segments_.all(); }

private:
    std::size_t begin_of(std::size_t index) const noexcept { return index == 0 ? 0 : ends_.all()[index - 1]; }

    bounded_list<std::size_t, max_write_chunks> ends_;
    bounded_list<segment, max_write_segments> segments_;
};

/// The bytes that the segments hold together.
std::uint64_t total_length(std::span<const segment> chunk) noexcept;
std::uint64_t total_length(std::span<const read_segment> chunk) noexcept;

/// Rewrites the lengths to tell that the first `length` bytes of the chunk were filled (RFC 8166
/// 3.4.6): unused segments get 0. False, and nothing is changed, if the chunk is smaller.
[[nodiscard]] bool set_returned_length(std::span<segment> chunk, std::uint64_t length) noexcept;

/// Cuts the first chunk off a Read list in order of positions: the segments with the position of its
/// first one. Empty if `list` is.
std::span<const read_segment> take_read_chunk(std::span<const read_segment>& list) noexcept;

} // namespace verbena::rpcrdma

#pragma GCC visibility pop
