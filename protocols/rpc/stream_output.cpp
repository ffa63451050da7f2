// SPDX-License-Identifier: Apache-2.0
#include "stream_output.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sys/socket.h>
#include <sys/uio.h>

namespace verbena::rpc {

void stream_output::append(std::unique_ptr<stream_call> c)
{
    bool keep = false;
    const auto put = [&](std::span<const std::byte> bytes) {
        if (c->block()) {
            refer(bytes, c->block().share());
        } else if (!copy(bytes)) {
            refer(bytes, {});
            keep = true;
        }
    };
    std::span<const std::byte> rest = c->framed_reply();
    if (const auto items = c->results().payloads(); !items.empty()) {
        static constexpr std::array<std::byte, xdr::unit> zeros{};
        const std::size_t before = fragment_header_size + items.front().offset;
        put(rest.first(before));
        rest = rest.subspan(before);
        const payload& bytes = c->result_payload();
        for (std::size_t i = 0; i < bytes.pieces().size(); ++i) {
            const auto piece = bytes.pieces()[i];
            if (piece.size() <= max_copied_piece && copy(piece)) {
                payload_copied_.add(piece.size());
                continue;
            }
            keep = keep || !bytes.owner(i);
            refer(piece, bytes.owner(i).share());
        }
        if (const std::size_t pad = xdr::pad_of(bytes.size()); pad != 0) {
            const auto bytes_of_pad = std::span(zeros).first(pad);
            if (!copy(bytes_of_pad))
                refer(bytes_of_pad, {});
        }
    }
    if (!rest.empty())
        put(rest);
    // Segments go in order, so what the last one keeps alive outlives all before it.
    if (keep)
        segments_.back().keeper = std::move(c);
}

bool stream_output::copy(std::span<const std::byte> bytes)
{
    if (bytes.empty())
        return true;
    if (!buffer_ || buffer_.size() - used_ < bytes.size()) {
        lease fresh = bytes.size() <= buffer_size ? pool_.try_acquire(buffer_size) : lease();
        if (!fresh)
            return false;
        buffer_ = std::move(fresh);
        used_ = 0;
    }
    std::byte* to = buffer_.data() + used_;
    std::memcpy(to, bytes.data(), bytes.size());
    const bool extends = used_ != 0 && first_ < segments_.size() &&
                         segments_.back().bytes.data() + segments_.back().bytes.size() == to;
    used_ += bytes.size();
    if (extends) {
        auto& last = segments_.back().bytes;
        last = {last.data(), last.size() + bytes.size()};
        queued_ += bytes.size();
    } else {
        refer({to, bytes.size()}, buffer_.share());
    }
    return true;
}

void stream_output::refer(std::span<const std::byte> bytes, lease owner)
{
    segments_.emplace_back(bytes, std::move(owner));
    queued_ += bytes.size();
}

stream_output::status stream_output::send(int fd, std::size_t& sent, unsigned& calls) noexcept
{
    sent = 0;
    while (queued_ != 0) {
        std::array<iovec, max_gathered> entries;
        const std::size_t count = std::min(segments_.size() - first_, max_gathered);
        std::size_t size = 0;
        for (std::size_t i = 0; i < count; ++i) {
            const auto bytes = segments_[first_ + i].bytes;
            entries[i] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
            size += bytes.size();
        }
        msghdr message{};
        message.msg_iov = entries.data();
        message.msg_iovlen = count;
        ssize_t n;
        do
            n = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        while (n < 0 && errno == EINTR);
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK ? status::blocked : status::failed;
        ++calls;
        sent += static_cast<std::size_t>(n);
        drop(static_cast<std::size_t>(n));
        if (static_cast<std::size_t>(n) < size)
            return status::blocked;
    }
    return status::drained;
}

void stream_output::drop(std::size_t bytes) noexcept
{
    queued_ -= bytes;
    while (bytes != 0) {
        segment& s = segments_[first_];
        if (bytes < s.bytes.size()) {
            s.bytes = s.bytes.subspan(bytes);
            break;
        }
        bytes -= s.bytes.size();
        s.owner.reset();
        s.keeper.reset();
        ++first_;
    }
    if (queued_ == 0) {
        clear();
    } else if (first_ > segments_.size() / 2) {
        segments_.erase(segments_.begin(), segments_.begin() + static_cast<std::ptrdiff_t>(first_));
        first_ = 0;
    }
}

void stream_output::clear() noexcept
{
    segments_.clear();
    first_ = 0;
    queued_ = 0;
    buffer_.reset();
    used_ = 0;
}

} // namespace verbena::rpc
