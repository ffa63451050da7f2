// SPDX-License-Identifier: Apache-2.0
// The placement engine. Bytes come either through the shard's staging buffer, many small FPDUs per
// recvmsg, or straight to where they belong: payload into its target, trailer and next header into
// scratch. Both ways walk the same states.
#include "queue_pair.hpp"

#include <verbena/core/memory/peer_order.hpp>

#include <algorithm>
#include <cerrno>
#include <poll.h>
#include <sys/socket.h>
#include <utility>

namespace verbena::iwarp {
namespace {

// Then others get their turn.
constexpr int max_receives_per_poll = 32;
constexpr std::size_t max_bytes_per_poll = std::size_t(1) << 20;
// Messages that have memory and that nobody has been told of. A read of the socket may bring thousands, of 24 octets each.
constexpr std::size_t max_untold_messages = 256;

} // namespace

// An FPDU of a Read Response that is to follow, as a scatter list has it: the payload in the sink, the rest here.
struct connection::foreseen {
    std::byte* target;
    std::size_t payload;
    std::size_t trailer;
    std::array<std::byte, wire::max_trailer + wire::tagged_size>
        behind; // its trailer, and the header of the next one
    std::size_t size() const noexcept { return payload + trailer + wire::tagged_size; }
};

// Where one recvmsg puts what it takes.
struct connection::scatter_list {
    static constexpr std::size_t max_foreseen = context_impl::staging_size / large_fpdu;
    void add(std::byte* p, std::size_t size) noexcept
    {
        vectors[count++] = {p, size};
        wanted += size;
    }
    iovec vectors[4 + 2 * max_foreseen];
    unsigned count = 0;
    std::size_t wanted = 0; // of all of it
    foreseen next[max_foreseen];
    std::size_t next_count = 0;
};

// While what another connection has read waits for memory, nothing is read ahead: there is one place to keep such bytes.
bool connection::reads_ahead() const noexcept { return !owner_.holds_over(); }

bool connection::bulk_expected() const noexcept
{
    return !small_fpdus_ && (bulk_read_bytes_ != 0 || domain_.expects_bulk());
}

// Reads what there is; true if there was anything. `broken`: what a send has heard of the socket. A read finds no error then, but an end.
bool connection::receive(const error* broken) noexcept
{
    const steering::section here(owner_.lane());
    bool any = false;
    std::size_t received = 0;
    for (int i = 0; i < max_receives_per_poll && received < max_bytes_per_poll; ++i) {
        scatter_list list;
        std::size_t direct = 0;
        const bool live = places();
        const bool ahead = !live || reads_ahead();
        const bool bulk = live && (bulk_expected() || !ahead);
        if (phase_ == phase::header && bulk) {
            list.add(header_.data() + header_have_, header_need_ - header_have_);
            direct = list.wanted;
        } else if (phase_ == phase::payload && live) {
            if (op_ == wire::opcode::write) {
                // The grant may have gone since the header was checked.
                const auto check = check_again(tagged_stag_, tagged_next_ - payload_left_, payload_left_,
                                               verbs::access::remote_write, is_staging_);
                if (check.rule != nullptr) {
                    refuse(check.fault, end_cause::access_error, check.rule);
                    return true;
                }
            }
            list.add(target_, payload_left_);
            list.add(trailer_.data(), trailer_need_);
            // With a large FPDU behind us the next header predicts as well: no byte of it is staged.
            const bool predicts = bulk && ahead && payload_size_ >= large_fpdu;
            if (predicts)
                list.add(next_header_.data(), wire::tagged_size);
            direct = list.wanted;
            if (predicts && op_ == wire::opcode::read_response)
                foresee(list);
        } else if (phase_ == phase::trailer && !ahead) {
            list.add(trailer_.data() + trailer_have_, trailer_need_ - trailer_have_);
            direct = list.wanted;
        }
        if (!(bulk && direct != 0)) {
            const auto staging = owner_.staging();
            list.add(staging.data(), staging.size());
        }
        msghdr m{};
        m.msg_iov = list.vectors;
        m.msg_iovlen = list.count;
        const ssize_t got = [&] {
            const reached_meanwhile here;
            return ::recvmsg(fd_.get(), &m, MSG_DONTWAIT);
        }();
        heard_of_peers(&domain_);
        context_impl::add(owner_.stats().receives, 1);
        if (got < 0) {
            if (errno == EINTR)
                continue;
            if (errno == EAGAIN || errno == EWOULDBLOCK)
                return any;
            finish(end_cause::peer_reset, error::from_errno(errno, "receive from the peer"));
            return true;
        }
        any = true;
        if (got == 0) {
            const bool between = phase_ == phase::header && header_have_ == 0 && !filling_ && !tagged_open_;
            if (broken != nullptr)
                finish(end_cause::peer_reset, *broken);
            else if (between)
                finish(end_cause::orderly,
                       error(verbs::connection_end::orderly, "the peer closed the connection"));
            else
                finish(end_cause::peer_reset,
                       error(std::errc::connection_reset, "the peer closed the connection inside a message"));
            return true;
        }
        auto left = static_cast<std::size_t>(got);
        received += left;
        context_impl::add(owner_.stats().bytes_received, left);
        if (!live)
            continue; // what arrives after the end is read and dropped, so that the FIN is seen
        const std::size_t in_place = std::min(left, direct);
        if (in_place != 0 && !advance(in_place))
            return true;
        left -= in_place;
        if (left != 0) {
            const bool goes_on = list.next_count != 0
                                     ? settle(std::span(list.next).first(list.next_count), left)
                                     : consume(owner_.staging().data(), left);
            if (!goes_on)
                return true;
        }
        if (static_cast<std::size_t>(got) < list.wanted)
            return true; // drained: the next call would only say so
    }
    return any;
}

// Adds the FPDUs that should follow the one in hand, if they are as long as it. Of a Read Response, since what is left of the sink is its
// peer's to fill until the Read is over: a wrong guess overwrites nothing there. No more than the staging buffer holds, to which such a
// guess takes what it brought.
void connection::foresee(scatter_list& list) noexcept
{
    const outstanding_read& read = reads_.front();
    std::size_t left = read.is_uneven ? 0 : read.length - read.placed;
    std::byte* at = read.sink + read.placed;
    for (std::size_t room = context_impl::staging_size; left != 0 && list.next_count < list.max_foreseen;) {
        foreseen& next = list.next[list.next_count];
        next.target = at;
        next.payload = std::min(payload_size_, left);
        next.trailer = wire::pad_of(wire::tagged_size - wire::length_size + next.payload) + wire::crc_size;
        if (next.size() > room)
            return;
        room -= next.size();
        at += next.payload;
        left -= next.payload;
        list.add(next.target, next.payload);
        list.add(next.behind.data(), next.trailer + wire::tagged_size);
        ++list.next_count;
    }
}

// Accounts for the `size` bytes that recvmsg put where FPDUs were foreseen. What is not as foreseen is staged, and placed from there.
bool connection::settle(std::span<const foreseen> next, std::size_t size) noexcept
{
    for (; size != 0; next = next.subspan(1)) {
        const foreseen& f = next.front();
        if (phase_ != phase::payload || op_ != wire::opcode::read_response || target_ != f.target ||
            payload_left_ != f.payload)
            break;
        const std::byte* from = f.behind.data();
        const auto take = [&](std::byte* to, std::size_t most) {
            const std::size_t part = std::min(size, most);
            std::memcpy(to, from, part);
            from += part;
            size -= part;
            return advance(part);
        };
        const std::size_t placed = std::min(size, f.payload);
        size -= placed;
        // Where it does not go on it has failed: amid a Read Response nothing is waited for.
        if (!advance(placed) || !take(trailer_.data(), f.trailer) || !take(header_.data(), wire::tagged_size))
            return false;
    }
    if (size == 0)
        return true;
    reads_.front().is_uneven = true;
    std::byte* const staged = owner_.staging().data();
    std::size_t have = 0;
    const auto stage = [&](const std::byte* from, std::size_t most) {
        const std::size_t part = std::min(size - have, most);
        std::memcpy(staged + have, from, part);
        have += part;
    };
    for (const foreseen& f : next) {
        stage(f.target, f.payload);
        stage(f.behind.data(), f.trailer + wire::tagged_size);
    }
    return consume(staged, size);
}

// Accounts for `size` bytes that recvmsg put where the vectors said.
bool connection::advance(std::size_t size) noexcept
{
    while (size > 0) {
        switch (phase_) {
        case phase::header: {
            const std::size_t part = std::min(size, header_need_ - header_have_);
            header_have_ += part;
            size -= part;
            if (header_have_ == header_need_) {
                if (!header_complete())
                    return false;
            } else if (header_have_ >= wire::length_size && !long_enough()) {
                return false; // what follows a short FPDU is no part of it, and may never come
            }
            break;
        }
        case phase::payload: {
            const std::size_t part = std::min(size, payload_left_);
            // Now, since the memory may be another's or gone when the trailer comes.
            if (agreed_.crc)
                crc_ = wire::crc32c(crc_, target_, part);
            target_ += part;
            payload_left_ -= part;
            size -= part;
            if (payload_left_ == 0)
                phase_ = phase::trailer;
            break;
        }
        case phase::trailer: {
            const std::size_t part = std::min(size, trailer_need_ - trailer_have_);
            trailer_have_ += part;
            size -= part;
            if (trailer_have_ == trailer_need_) {
                if (!fpdu_complete())
                    return false;
                // What is refused or asked for needed the old header until here.
                if (size > 0)
                    std::ranges::copy(next_header_, header_.begin());
            }
            break;
        }
        }
    }
    return true;
}

// Places `size` staged bytes.
bool connection::consume(const std::byte* data, std::size_t size) noexcept
{
    while (size > 0) {
        std::byte* to = nullptr;
        std::size_t room = 0;
        switch (phase_) {
        case phase::header:
            to = header_.data() + header_have_;
            room = header_need_ - header_have_;
            break;
        case phase::payload:
            to = target_;
            room = payload_left_;
            break;
        case phase::trailer:
            to = trailer_.data() + trailer_have_;
            room = trailer_need_ - trailer_have_;
            break;
        }
        const std::size_t part = std::min(size, room);
        std::memcpy(to, data, part);
        // A Send carries a message of the layer above, which is small, and not the payload that it moves.
        if (phase_ == phase::payload && (op_ == wire::opcode::write || op_ == wire::opcode::read_response))
            context_impl::add(owner_.stats().payload_copied_bytes, part);
        data += part;
        size -= part;
        if (!advance(part)) {
            if (is_parked())
                keep_left_over({data, size});
            return false;
        }
    }
    return true;
}

// The connection fails: says why in a Terminate, then ends. Always false.
bool connection::refuse(const wire::terminate_code& code, end_cause cause, const char* rule,
                        quote quoted) noexcept
{
    if (!places())
        return false;
    first_ = first_fpdu::passed; // what came is an FPDU, if a bad one, so the peer takes a Terminate
    end_ = cause;
    end_error_ = error(std::errc::protocol_error, rule);
    // RFC 5040 4.8: MPA errors carry no headers, the others the offending DDP header.
    std::span<const std::byte> ddp;
    if (quoted == quote::header && code.layer != 2 && header_have_ >= wire::tagged_size) {
        const bool tagged = (wire::load16(&header_[2]) & wire::flag_tagged) != 0;
        ddp = std::span(header_).subspan(
            wire::length_size, (tagged ? wire::tagged_size : wire::untagged_size) - wire::length_size);
    }
    terminate_size_ =
        wire::encode_terminate(code, ddp, wire::load16(header_.data()), terminate_payload_.data());
    stop_waiting();
    state_.to(connection_state::refusing, rule);
    shard().timers().arm(*this, shard().clock().now() + owner_.options().close_timeout);
    ring_doorbell();
    return false;
}

// For the smallest header of all. RFC 5041 7.2 has no code for it, and RFC 5044 8 none but that of a length that can't be.
bool connection::long_enough() noexcept
{
    return wire::load16(header_.data()) + wire::length_size >= wire::tagged_size ||
           refuse(wire::mpa_length, end_cause::protocol_error, "ULPDU shorter than any header");
}

bool connection::header_complete() noexcept
{
    if (!long_enough())
        return false;
    const std::size_t ulpdu = wire::load16(header_.data());
    const std::uint16_t control = wire::load16(&header_[2]);
    const bool tagged = (control & wire::flag_tagged) != 0;
    if (header_need_ == wire::tagged_size) {
        if ((control & wire::ddp_version_mask) != wire::ddp_version)
            return refuse(tagged ? wire::ddp_tagged_version : wire::ddp_untagged_version,
                          end_cause::protocol_error, "DDP version is not 1 (RFC 5041 4.1)");
        if ((control & wire::rdmap_version_mask) != wire::rdmap_version)
            return refuse(wire::rdmap_version_error, end_cause::protocol_error,
                          "RDMAP version is not 1 (RFC 5040 4.1)");
        if (!tagged) {
            const auto op = wire::opcode(control & wire::opcode_mask);
            header_need_ = op == wire::opcode::read_request ? wire::read_request_size : wire::untagged_size;
        }
        if (ulpdu + wire::length_size < header_need_)
            return refuse(wire::mpa_length, end_cause::protocol_error, "ULPDU shorter than its header");
        if (header_have_ < header_need_)
            return true;
    }
    payload_size_ = ulpdu + wire::length_size - header_need_;
    payload_left_ = payload_size_;
    trailer_need_ = wire::pad_of(ulpdu) + wire::crc_size;
    trailer_have_ = 0;
    return begin_fpdu();
}

// The header stands in header_. False: the connection has failed, or the message waits for a receive or a store, and this is to be called
// again.
bool connection::begin_fpdu() noexcept
{
    if (stores_ != nullptr && !is_behind_stores())
        return false;
    const bool tagged = (wire::load16(&header_[2]) & wire::flag_tagged) != 0;
    if (!(tagged ? begin_tagged() : begin_untagged()))
        return false;
    if (agreed_.crc)
        crc_ = wire::crc32c(0, header_.data(), header_need_);
    phase_ = payload_size_ != 0 ? phase::payload : phase::trailer;
    return true;
}

// What size the peer's FPDUs have. The last of a message may be small whatever the others are, so it tells something only if
// it is large.
void connection::judge_size() noexcept
{
    if (!last_ || payload_size_ >= large_fpdu)
        small_fpdus_ = payload_size_ < large_fpdu;
}

bool connection::begin_tagged() noexcept
{
    const wire::tagged_header h = wire::parse_tagged(header_.data());
    op_ = h.op;
    last_ = h.last;
    if (op_ != wire::opcode::write && op_ != wire::opcode::read_response)
        return refuse(wire::unexpected_opcode, end_cause::protocol_error,
                      "tagged message with an untagged opcode");
    if (tagged_open_) {
        if (h.op != tagged_op_ || h.stag != tagged_stag_ || h.offset != tagged_next_)
            return refuse(wire::ddp_bounds, end_cause::protocol_error,
                          "segments of a tagged message are not contiguous (RFC 5041 5.2)");
    } else if (h.op == wire::opcode::write) {
        written_ = 0;
    }
    target_ = nullptr;
    is_staging_ = false;
    // First, as the header of a Write that waits for a buffer is looked at again.
    bool is_of_store = false;
    if (op_ == wire::opcode::write && payload_size_ != 0) {
        const auto check = owner_.table().check(h.stag, h.offset, payload_size_, verbs::access::remote_write,
                                                domain_, scope(), false);
        if (check.rule != nullptr)
            return refuse(check.fault, end_cause::access_error, check.rule);
        target_ = check.address;
        is_of_store = check.store != nullptr;
        if (is_of_store && !has_room_to_stage())
            return false;
    }
    tagged_op_ = h.op;
    tagged_stag_ = h.stag;
    tagged_next_ = h.offset + payload_size_;
    tagged_open_ = !h.last;
    judge_size();

    if (op_ == wire::opcode::read_response) {
        if (reads_.empty())
            return refuse(wire::unexpected_opcode, end_cause::protocol_error,
                          "Read Response without a Read Request");
        outstanding_read& read = reads_.front();
        const auto base = reinterpret_cast<std::uint64_t>(read.sink);
        if (h.stag != read.stag || h.offset != base + read.placed)
            return refuse(wire::ddp_invalid_stag, end_cause::access_error,
                          "Read Response does not match the oldest Read Request");
        if (payload_size_ > read.length - read.placed)
            return refuse(wire::ddp_bounds, end_cause::access_error, "Read Response longer than its request");
        if (last_ != (payload_size_ == read.length - read.placed))
            return refuse(wire::ddp_bounds, end_cause::protocol_error,
                          "Read Response shorter than its request");
        target_ = read.sink + read.placed;
        read.placed += static_cast<std::uint32_t>(payload_size_);
        return true;
    }
    // RFC 5041 5.2: the tag and offset of a zero-length message are not checked.
    if (payload_size_ == 0)
        is_staging_ = stores_ != nullptr && stores_->size != 0; // it may be the last one of what is staged
    else if (is_of_store)
        stage();
    return true;
}

// The receive of the message that begins or goes on stands in front.
bool connection::take_receive() noexcept
{
    if (filling_)
        return true;
    if (shared_ == nullptr) {
        filling_ = !receive_queue_.empty();
        return filling_;
    }
    if (is_supplied() && untold_messages_ >= max_untold_messages)
        return false;
    if (verbs::receive_request taken; receive_queue_.empty()) {
        if (shared_->take(taken))
            receive_queue_.push(taken);
        else if (receive_queue_.empty()) // else it was given the one for which it stood in line already
            return false;
    }
    filling_ = true;
    // The reserve is in use now, and the next Send may stand before the Read Responses too.
    if (!reads_.empty())
        (void)take_reserve();
    return true;
}

// For a Send that comes before the Read Responses do. False: it is waited for, with what needs it.
bool connection::take_reserve() noexcept
{
    verbs::receive_request taken;
    if (!is_supplied() || has_reserve())
        return true;
    if (shared_->take(taken))
        receive_queue_.push(taken);
    else if (!has_reserve()) // else it was given the one for which it stood in line already
        shared_->wait(*this);
    return has_reserve();
}

// No Read is under way any more.
void connection::return_reserve() noexcept
{
    if (!is_supplied())
        return;
    if (!is_parked())
        receive_waiter::unlink();
    if (is_parked() || !has_reserve())
        return;
    const verbs::receive_request unused = receive_queue_.at(receive_queue_.tail() - 1);
    receive_queue_.pop_back();
    shared_->give_back(unused);
}

// Always false. Where there may be one later, TCP holds the peer back from now on.
bool connection::no_receive(const char* rule) noexcept
{
    if (!is_supplied())
        return refuse(wire::ddp_no_buffer, end_cause::no_receive, rule);
    park("a message has no receive");
    if (untold_messages_ >= max_untold_messages) {
        shard().post(go_on_); // when those have been told of
    } else {
        shared_->wait(*this);
        pauses_.lasts = true;
        pauses_.begun = shard().now();
        watch_hang_up();
    }
    return false;
}

// While nothing is read.
void connection::watch_hang_up() noexcept
{
    watches_hang_up_ =
        shard().io().poll_once(fd_.get(), POLLRDHUP, hang_up_).has_value(); // a full ring tells nothing
}

// The initiator sends FPDUs.
void connection::note_first() noexcept
{
    if (first_ != first_fpdu::awaited)
        return;
    first_ = first_fpdu::passed;
    if (!send_queue_.empty() || is_draining())
        ring_doorbell();
}

void connection::park(const char* why) noexcept
{
    state_.to(is_draining() ? connection_state::draining_parked : connection_state::parked, why);
    fpdu_begun_.reset(); // it is not the peer that takes its time
    want_read(false);
    note_first(); // for what this end has posted: it may be what frees memory
}

void connection::unpark(const char* why) noexcept
{
    state_.to(is_draining() ? connection_state::draining : connection_state::open, why);
    end_pause();
}

void connection::end_pause() noexcept
{
    if (std::exchange(watches_hang_up_, false))
        shard().io().detach(hang_up_);
    if (std::exchange(pauses_.lasts, false))
        pauses_.over += shard().now() - pauses_.begun;
}

// Of a peer that closes its side nothing more is answered: what it has sent need not have memory, which others wait for.
void connection::peer_hung_up(std::int32_t events) noexcept
{
    if (events >= 0 && is_parked())
        finish(
            end_cause::peer_reset,
            error(std::errc::connection_reset,
                  "the peer closed the connection while a message of it waited for memory, or for a disk"));
}

void connection::give(const verbs::receive_request& r) noexcept
{
    receive_queue_.push(r);
    if (is_parked())
        shard().post(go_on_);
    else
        ring_doorbell(); // a Read waits for the reserve
}

void connection::go_on_receiving(const char* why) noexcept
{
    deliver();
    if (!is_parked() || is_writing_store())
        return;
    unpark(why);
    const steering::section here(owner_.lane());
    if (begin_fpdu()) {
        const auto left = left_over();
        if (left.empty() || consume(left.data(), left.size()))
            drop_left_over();
    }
    if (state_ != connection_state::closed && !is_parked())
        want_read(true);
    watch_fpdu();
    deliver();
}

// Nothing that came is placed any more. Before the state says so.
void connection::stop_waiting() noexcept
{
    receive_waiter::unlink();
    go_on_.unlink();
    drop_left_over();
    stop_stores();
    if (is_parked()) {
        end_pause();
        want_read(true); // to see the end
    }
}

bool connection::begin_untagged() noexcept
{
    const wire::untagged_header h = wire::parse_untagged(header_.data());
    op_ = h.op;
    last_ = h.last;
    switch (op_) {
    case wire::opcode::send:
    case wire::opcode::send_invalidate:
    case wire::opcode::send_solicited:
    case wire::opcode::send_solicited_invalidate: {
        if (h.queue != wire::queue_send)
            return refuse(wire::ddp_queue, end_cause::protocol_error, "Send on a queue other than 0");
        if (h.sequence != expected_send_)
            return refuse(wire::ddp_sequence, end_cause::protocol_error,
                          "message sequence number out of order");
        if (h.offset != send_have_)
            return refuse(wire::ddp_offset, end_cause::protocol_error, "message offset out of order");
        if (!take_receive())
            return no_receive("Send without a posted receive");
        const verbs::segment& s = receive_queue_.front().segment;
        if (payload_size_ > s.length - send_have_) {
            first_receive_ = verbs::status::local_length_error;
            return refuse(wire::ddp_no_buffer, end_cause::no_receive, "Send longer than the posted receive");
        }
        const bool with =
            op_ == wire::opcode::send_invalidate || op_ == wire::opcode::send_solicited_invalidate;
        invalidate_ = with ? h.invalidate : 0;
        if (with && h.invalidate == 0)
            return refuse(wire::cannot_invalidate, end_cause::access_error,
                          "steering tag 0 cannot be invalidated");
        target_ = s.address + send_have_;
        judge_size();
        return true;
    }
    case wire::opcode::immediate:
    case wire::opcode::immediate_solicited: {
        if (h.queue != wire::queue_send)
            return refuse(wire::ddp_queue, end_cause::protocol_error,
                          "immediate data on a queue other than 0");
        if (h.sequence != expected_send_ || filling_)
            return refuse(wire::ddp_sequence, end_cause::protocol_error,
                          "message sequence number out of order");
        if (h.offset != 0 || !last_ || payload_size_ != wire::immediate_size)
            return refuse(wire::ddp_too_long, end_cause::protocol_error,
                          "immediate data of another size than 8 octets (RFC 7306 6.1)");
        if (!take_receive())
            return no_receive("immediate data without a posted receive");
        target_ = small_.data();
        return true;
    }
    case wire::opcode::read_request: {
        if (h.queue != wire::queue_read)
            return refuse(wire::ddp_queue, end_cause::protocol_error, "Read Request on a queue other than 1");
        if (h.sequence != expected_read_ || h.offset != 0 || !last_)
            return refuse(wire::ddp_sequence, end_cause::protocol_error, "Read Request out of order");
        if (payload_size_ != 0)
            return refuse(wire::mpa_length, end_cause::protocol_error, "Read Request with a payload");
        if (peer_reads_.room() == 0)
            return refuse(wire::ddp_no_buffer, end_cause::protocol_error,
                          "more Read Requests than the agreed IRD");
        return true;
    }
    case wire::opcode::terminate:
        if (h.queue != wire::queue_terminate)
            return refuse(wire::ddp_queue, end_cause::protocol_error, "Terminate on a queue other than 2");
        if (payload_size_ > small_.size())
            return refuse(wire::ddp_too_long, end_cause::protocol_error,
                          "Terminate longer than its largest form");
        target_ = small_.data();
        return true;
    default:
        return refuse(wire::unexpected_opcode, end_cause::protocol_error,
                      "unknown or tagged opcode in an untagged message");
    }
}

bool connection::fpdu_complete() noexcept
{
    if (agreed_.crc) {
        const std::size_t pad = trailer_need_ - wire::crc_size;
        const std::uint32_t crc = wire::crc32c(crc_, trailer_.data(), pad);
        std::uint32_t sent = 0;
        for (unsigned i = 0; i < wire::crc_size; ++i)
            sent |= std::to_integer<std::uint32_t>(trailer_[pad + i]) << (8 * i);
        if (sent != crc)
            return refuse(wire::mpa_crc, end_cause::crc_error, "CRC of an FPDU is wrong (RFC 5044 4.4)");
        context_impl::add(owner_.stats().crc_checked, 1);
    }
    note_first();
    if (!end_of_message())
        return false;
    if (shared_ == nullptr || !filling_)
        fpdu_begun_.reset();
    phase_ = phase::header;
    header_have_ = 0;
    header_need_ = wire::tagged_size;
    return places();
}

// What a whole FPDU, checked and placed, means.
bool connection::end_of_message() noexcept
{
    if (op_ == wire::opcode::write) { // of all its segments, as long as nothing comes between
        written_ += static_cast<std::uint32_t>(payload_size_);
        return !is_staging_ || staged();
    }
    const std::uint32_t written = std::exchange(written_, 0);
    switch (op_) {
    case wire::opcode::immediate:
    case wire::opcode::immediate_solicited: {
        verbs::completion c;
        c.id = receive_queue_.front().id;
        c.opcode = verbs::opcode::receive_immediate;
        c.length = written;
        c.immediate = wire::load32(small_.data());
        receive_queue_.pop();
        filling_ = false;
        ++expected_send_;
        ++untold_messages_;
        complete(c);
        return true;
    }
    case wire::opcode::read_response: {
        if (!last_)
            return true;
        const outstanding_read read = reads_.front();
        reads_.pop();
        if (read.length >= iwarp::domain::bulk)
            bulk_read_bytes_ -= read.length;
        if (reads_.empty())
            return_reserve();
        send_queue_.at(read.work_index).done = true;
        retire();
        ring_doorbell(); // a fenced request or one that waited for ORD may go now
        return true;
    }
    case wire::opcode::read_request: {
        const wire::read_request r = wire::parse_read_request(&header_[wire::untagged_size]);
        ++expected_read_;
        bool is_of_store = false;
        if (r.size != 0) {
            const auto check = owner_.table().check(r.source_stag, r.source_offset, r.size,
                                                    verbs::access::remote_read, domain_, scope(), true);
            if (check.rule != nullptr)
                return refuse(check.fault, end_cause::access_error, check.rule);
            is_of_store = check.store != nullptr;
        }
        peer_reads_.push({r, is_of_store});
        ring_doorbell();
        return true;
    }
    case wire::opcode::terminate: {
        const auto reading = wire::parse_terminate(std::span(small_).first(payload_size_));
        const auto& c = reading.as_specified;
        finish(end_cause::peer_terminate,
               error(std::errc::connection_aborted, "the peer sent Terminate (layer, type, code as 0xLTCC)",
                     std::uint64_t(c.layer) << 12 | std::uint64_t(c.type) << 8 | c.code));
        return false;
    }
    default: break;
    }
    send_have_ += static_cast<std::uint32_t>(payload_size_);
    if (!last_)
        return true;
    verbs::completion c;
    c.id = receive_queue_.front().id;
    c.opcode = verbs::opcode::receive;
    c.length = send_have_;
    if (invalidate_ != 0) {
        // RFC 5040 5.3: the tag is invalid before the Send is delivered.
        if (!owner_.table().invalidate(invalidate_, domain_, scope()))
            return refuse(wire::cannot_invalidate, end_cause::access_error,
                          "Send with Invalidate of a steering tag that is not this connection's");
        // A full socket may have owed octets of that memory: the connection has ended then, and this receive with it.
        if (!places())
            return false;
        c.invalidated_key = invalidate_;
    }
    receive_queue_.pop();
    filling_ = false;
    send_have_ = 0;
    ++expected_send_;
    ++untold_messages_;
    complete(c);
    return true;
}

} // namespace verbena::iwarp
