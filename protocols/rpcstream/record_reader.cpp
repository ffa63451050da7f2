// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/rpcstream/record_reader.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace verbena::rpc {
namespace {

// Less than this at the end of a buffer isn't worth a receive.
constexpr std::size_t min_room = 1024;
constexpr std::size_t first_join = std::size_t(16) << 10;

} // namespace

// Replaces current_ by a fresh buffer; the last `keep` bytes in hand go along.
bool record_reader::switch_buffer(std::size_t size, std::size_t keep) noexcept
{
    lease fresh = pool_.try_acquire(std::max(size, options_.receive_size));
    if (!fresh)
        return false;
    if (keep != 0)
        std::memcpy(fresh.data(), at(filled_ - keep), keep);
    current_ = std::move(fresh);
    parsed_ = 0;
    filled_ = keep;
    return true;
}

// What a peer has announced and not sent is held for as long as it likes, so the share is asked first.
bool record_reader::take_share(std::size_t size) noexcept
{
    if (options_.share == nullptr || size <= options_.receive_size)
        return true;
    const std::size_t wanted = std::bit_ceil(size);
    if (wanted <= share_taken_)
        return true;
    if (!options_.share->take(wanted - share_taken_))
        return false;
    share_taken_ = wanted;
    return true;
}

void record_reader::give_share_back() noexcept
{
    if (share_taken_ != 0)
        options_.share->give_back(std::exchange(share_taken_, 0));
}

std::span<std::byte> record_reader::space() noexcept
{
    if (!current_ && !switch_buffer(options_.receive_size, 0))
        return {};
    // A large record that begins near the end gets its first head_size bytes into this slack, so that
    // they are contiguous without a copy.
    const std::size_t end = current_.size() - head_size;
    if (state_ == state::record) {
        const std::size_t missing = length_ - front_bytes_.size() - in_hand();
        if (filled_ + missing <= end)
            return {at(filled_), end - filled_};
        if (length_ <= max_copied_record) {
            const std::size_t kept = in_hand();
            if (!switch_buffer(length_ + head_size, kept))
                return {};
            copied_ = kept;
        } else if (in_hand() < head_size) {
            return {at(filled_), parsed_ + head_size - filled_};
        } else {
            const std::span<const std::byte> bytes(at(parsed_), in_hand());
            lease owner = current_.share();
            if (!take_share(missing + head_size))
                return {};
            if (!switch_buffer(missing + head_size, 0)) {
                give_share_back();
                return {};
            }
            front_ = std::move(owner);
            front_bytes_ = bytes;
        }
        return {at(filled_), current_.size() - head_size - filled_};
    }
    if (in_hand() == 0 && current_.unique())
        parsed_ = filled_ = 0;
    if (filled_ + min_room > end && !switch_buffer(in_hand() + min_room + head_size, in_hand()))
        return {};
    return {at(filled_), current_.size() - head_size - filled_};
}

record_reader::status record_reader::next(record& out) noexcept
{
    for (;;) {
        switch (state_) {
        case state::header: {
            if (in_hand() < fragment_header_size)
                return status::incomplete;
            if (const status s = begin_fragment(); s != status::incomplete)
                return s;
            break;
        }
        case state::record:
            if (front_bytes_.size() + in_hand() < length_)
                return status::incomplete;
            take_record(out);
            return status::record;
        case state::fragment: {
            const std::size_t n = std::min(in_hand(), length_);
            if (n != 0 && !join({at(parsed_), n}))
                return status::no_memory;
            parsed_ += n;
            length_ -= n;
            if (length_ != 0)
                return status::incomplete;
            state_ = state::header;
            if (last_fragment_) {
                take_joined(out);
                return status::record;
            }
            break;
        }
        }
    }
}

record_reader::status record_reader::begin_fragment() noexcept
{
    const std::span<const std::byte, fragment_header_size> bytes(at(parsed_), fragment_header_size);
    const fragment_header header = decode_fragment_header(bytes);
    if (header.length > options_.max_record || joined_size_ > options_.max_record - header.length)
        return status::too_long;
    parsed_ += fragment_header_size;
    length_ = header.length;
    if (header.last && fragments_ == 0) {
        state_ = state::record;
        return status::incomplete;
    }
    if (++fragments_ > max_fragments)
        return status::too_many_fragments;
    last_fragment_ = header.last;
    state_ = state::fragment;
    return status::incomplete;
}

void record_reader::take_record(record& out) noexcept
{
    const std::span<const std::byte> bytes(at(parsed_), length_ - front_bytes_.size());
    if (front_) {
        out.first = front_bytes_;
        out.first_owner = std::move(front_);
        out.second = bytes;
        out.second_owner = current_.share();
    } else {
        out.first = bytes;
        out.first_owner = current_.share();
        out.second = {};
        out.second_owner.reset();
    }
    out.copied = copied_;
    parsed_ += bytes.size();
    front_bytes_ = {};
    copied_ = 0;
    length_ = 0;
    state_ = state::header;
    give_share_back();
}

void record_reader::take_joined(record& out) noexcept
{
    out.first = {joined_ ? joined_.data() : nullptr, joined_size_};
    out.first_owner = std::move(joined_);
    out.second = {};
    out.second_owner.reset();
    out.copied = joined_size_;
    joined_size_ = 0;
    fragments_ = 0;
    last_fragment_ = false;
    give_share_back();
}

bool record_reader::join(std::span<const std::byte> bytes) noexcept
{
    const std::size_t size = joined_size_ + bytes.size();
    if (!joined_ || size > joined_.size()) {
        // Doubles, so that the copies stay in proportion; what was announced but not sent takes no memory.
        const std::size_t wanted = std::max(first_join, size);
        const std::size_t before = share_taken_;
        // At once for the most that it can become: streams of one host that each hold a part and wait for more would
        // wait for each other.
        if (!take_share(wanted <= options_.receive_size ? wanted : options_.max_record))
            return false;
        lease larger = pool_.try_acquire(wanted);
        if (!larger) {
            if (share_taken_ != before)
                options_.share->give_back(std::exchange(share_taken_, before) - before);
            return false;
        }
        if (joined_size_ != 0)
            std::memcpy(larger.data(), joined_.data(), joined_size_);
        joined_ = std::move(larger);
    }
    std::memcpy(joined_.data() + joined_size_, bytes.data(), bytes.size());
    joined_size_ = size;
    return true;
}

} // namespace verbena::rpc
