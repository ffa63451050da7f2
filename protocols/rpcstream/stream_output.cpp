// SPDX-License-Identifier: Apache-2.0
#include "stream_output.hpp"

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/reactor/sigpipe.hpp>
#include <verbena/core/reactor/voluntary_switches.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

namespace verbena::rpc {

namespace {

// sendfile(2) tells errors of the file and of the socket alike; ENOMEM may be of either.
bool is_of_socket(int error) noexcept
{
    switch (error) {
    case EINTR:
    case EAGAIN:
    case EPIPE:
    case ECONNRESET:
    case ECONNABORTED:
    case ENOTCONN:
    case ETIMEDOUT:
    case ENETDOWN:
    case ENETUNREACH:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENOPROTOOPT: // as ICMP has it, this and the next
    case EPROTO:
    case ENOBUFS: return true;
    default: return false;
    }
}

ssize_t send_part(int fd, const file_range& file) noexcept
{
    auto at = static_cast<off_t>(file.offset);
    // sendfile(2) has no MSG_NOSIGNAL: a peer that went must not end a process that minds SIGPIPE.
    const sigpipe_guard no_signal;
    if (file.told == nullptr)
        return ::sendfile(fd, file.fd, &at, file.size);
    reactor* const here = reactor::current();
    const clock_source& clock = here != nullptr ? here->clock() : system_clock();
    file_send how;
    const std::int64_t switches = file.tells_waits ? voluntary_switches() : 0;
    how.begun = clock.now();
    const ssize_t n = ::sendfile(fd, file.fd, &at, file.size);
    const int failed = n < 0 ? errno : 0;
    if (file.tells_waits)
        how.waited = voluntary_switches() != switches;
    how.ended = clock.now();
    how.error = is_of_socket(failed) ? 0 : failed;
    file.told(file.owner.get(), how);
    errno = failed;
    return n;
}

} // namespace

std::size_t stream_output::append(std::unique_ptr<stream_call> c)
{
    bool keep = false;
    bool is_copied = true;
    const auto put = [&](std::span<const std::byte> bytes) {
        if (bytes.size() <= max_copied_results && copy(bytes))
            return;
        is_copied = false;
        if (c->block()) {
            refer(bytes, c->block().share());
        } else {
            refer(bytes, {});
            keep = true;
        }
    };
    static constexpr std::array<std::byte, xdr::unit> zeros{};
    c->mark_reply();
    std::size_t mark = fragment_header_size; // in front of the first stretch
    c->results().in_order(
        [&](std::span<const std::byte> bytes) {
            put({bytes.data() - mark, bytes.size() + mark});
            mark = 0;
        },
        [&](std::size_t item) {
            attachment& a = c->attached_at(item);
            const std::size_t pad = xdr::pad_of(a.size());
            if (!a.file.empty())
                refer(std::exchange(a.file, file_range()));
            for (std::size_t i = 0; i < a.bytes.pieces().size(); ++i) {
                const auto piece = a.bytes.pieces()[i];
                if (piece.size() <= max_copied_piece && copy(piece)) {
                    payload_copied_.add(piece.size());
                    continue;
                }
                const lease& owner = a.bytes.owner(i);
                refer(piece, owner.share());
                if (!owner && a.bytes.keeper())
                    segments_.back().file.owner = a.bytes.keeper();
                else
                    keep = keep || !owner;
            }
            if (pad != 0 && !copy(std::span(zeros).first(pad)))
                refer(std::span(zeros).first(pad), {});
        });
    const std::size_t spared = is_copied && !keep ? c->unused_block() : 0;
    // Segments go in order, so what the last one keeps alive outlives all before it.
    if (keep)
        segments_.back().keeper = std::move(c);
    return spared;
}

void stream_output::append(lease bytes, std::size_t length)
{
    const std::span<const std::byte> record = bytes.bytes().first(length);
    if (length > max_copied_piece || !copy(record))
        refer(record, std::move(bytes));
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

void stream_output::reserve_segment()
{
    if (segments_.capacity() == 0)
        segments_.reserve(usual_segments);
    else if (segments_.size() == segments_.capacity() && first_ >= segments_.size() / 4)
        drop_sent();
}

void stream_output::drop_sent() noexcept
{
    segments_.erase(segments_.begin(), segments_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
}

void stream_output::refer(std::span<const std::byte> bytes, lease owner)
{
    reserve_segment();
    segments_.emplace_back(bytes, std::move(owner));
    queued_ += bytes.size();
}

void stream_output::refer(file_range file)
{
    reserve_segment();
    queued_ += file.size;
    segments_.emplace_back(std::move(file));
}

stream_output::status stream_output::send(int fd, std::size_t& sent, unsigned& calls) noexcept
{
    sent = 0;
    while (queued_ != 0) {
        ssize_t n;
        std::size_t offered =
            0; // a file may come in several parts: only the socket's word says that it is full
        do
            n = segments_[first_].file.empty() ? send_memory(fd, offered)
                                               : send_part(fd, segments_[first_].file);
        while (n < 0 && errno == EINTR);
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK ? status::blocked : status::failed;
        if (n == 0) // any other bytes would pass for the file's
            return status::cut_short;
        ++calls;
        sent += static_cast<std::size_t>(n);
        drop(static_cast<std::size_t>(n));
        if (static_cast<std::size_t>(n) < offered)
            return status::blocked;
    }
    return status::drained;
}

// All that lies in memory up to the next file.
ssize_t stream_output::send_memory(int fd, std::size_t& offered) noexcept
{
    offered = 0;
    std::array<iovec, max_gathered> entries;
    std::size_t count = 0;
    std::size_t i = first_;
    for (; i < segments_.size() && count < max_gathered && segments_[i].file.empty(); ++i) {
        const auto bytes = segments_[i].bytes;
        entries[count++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
        offered += bytes.size();
    }
    msghdr message{};
    message.msg_iov = entries.data();
    message.msg_iovlen = count;
    return ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT | (i < segments_.size() ? MSG_MORE : 0));
}

void stream_output::drop(std::size_t bytes) noexcept
{
    queued_ -= bytes;
    while (bytes != 0) {
        segment& s = segments_[first_];
        if (bytes < s.size()) {
            if (s.file.empty()) {
                s.bytes = s.bytes.subspan(bytes);
            } else {
                s.file.offset += bytes;
                s.file.size -= bytes;
            }
            break;
        }
        bytes -= s.size();
        s.owner.reset();
        s.keeper.reset();
        s.file = file_range();
        ++first_;
    }
    if (queued_ == 0) {
        clear();
    } else if (first_ > segments_.size() / 2) {
        drop_sent();
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
