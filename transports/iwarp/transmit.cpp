// SPDX-License-Identifier: Apache-2.0
// Segmenting and sending: work requests and Read Responses become FPDUs, FPDUs become one sendmsg.
#include "queue_pair.hpp"

#include <verbena/core/memory/peer_order.hpp>

#include <algorithm>
#include <cerrno>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <new>
#include <sys/socket.h>
#include <utility>

namespace verbena::iwarp {
namespace {

constexpr std::size_t max_batch_bytes = std::size_t(1) << 20;
// Then others get their turn, however fast the peer takes what it is sent.
constexpr unsigned max_sends_per_turn = 32;
constexpr std::size_t max_bytes_per_turn = std::size_t(4) << 20;
// The segment size follows the path and the peer's window; the latter bounds it at first: on loopback to half of what it is later.
constexpr std::uint64_t sizing_interval = std::uint64_t(1) << 20;

constexpr std::size_t min_segment = 128;     // RFC 5044 4.5: MULPDU is never below 128
constexpr std::size_t largest_ulpdu = 65532; // 16 bits of length, kept a multiple of 4

// RFC 5044 4.5, without markers: MULPDU = EMSS - (6 + EMSS mod 4).
std::size_t payload_limit(int fd) noexcept
{
    int mss = 0;
    socklen_t size = sizeof mss;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &mss, &size) != 0 || mss <= 0)
        mss = 1460;
    const auto emss = static_cast<std::size_t>(mss);
    const std::size_t overhead = 6 + emss % 4;
    const std::size_t mulpdu =
        std::min(emss > overhead + min_segment ? emss - overhead : min_segment, largest_ulpdu);
    return (mulpdu - (wire::untagged_size - wire::length_size)) & ~std::size_t(7);
}

} // namespace

std::byte* connection::scratch(std::size_t size) noexcept
{
    std::byte* p = scratch_->data() + scratch_used_;
    scratch_used_ += size;
    return p;
}

void connection::add_vector(const std::byte* data, std::size_t size)
{
    if (size == 0)
        return;
    // A trailer and the header behind it stand side by side in the scratch memory.
    if (!vectors_.empty() &&
        static_cast<const std::byte*>(vectors_.back().iov_base) + vectors_.back().iov_len == data)
        vectors_.back().iov_len += size;
    else
        vectors_.push_back({const_cast<std::byte*>(data), size});
}

// Between messages, as those of a message are split evenly.
void connection::size_fpdus() noexcept
{
    max_payload_ = payload_limit(fd_.get());
    since_sizing_ = 0;
}

// The payload of each FPDU but the last of a message of so many octets: it is split evenly.
std::uint32_t connection::fpdu_of(std::size_t length) const noexcept
{
    const std::size_t n = std::max<std::size_t>(1, (length + max_payload_ - 1) / max_payload_);
    return static_cast<std::uint32_t>(std::min(max_payload_, ((length + n - 1) / n + 7) & ~std::size_t(7)));
}

// Adds pad and CRC; `crc_so_far` covers header and payload.
void connection::end_fpdu(std::uint32_t crc_so_far, std::size_t ulpdu) noexcept
{
    const std::size_t pad = wire::pad_of(ulpdu);
    std::byte* trailer = scratch(pad + wire::crc_size);
    std::fill_n(trailer, pad, std::byte(0));
    std::uint32_t crc = 0;
    if (agreed_.crc) {
        crc = wire::crc32c(crc_so_far, trailer, pad);
        // RFC 5044 4.4: least significant byte first.
        for (unsigned i = 0; i < wire::crc_size; ++i)
            trailer[pad + i] = std::byte(crc >> (8 * i));
    } else {
        std::fill_n(trailer + pad, wire::crc_size, std::byte(0));
    }
    add_vector(trailer, pad + wire::crc_size);
    ++batch_fpdus_;
}

void connection::add_terminate() noexcept
{
    std::byte* header = scratch(wire::untagged_size);
    const wire::untagged_header h{wire::opcode::terminate, true, 0, wire::queue_terminate, 1, 0};
    wire::encode(h, terminate_size_, header);
    add_vector(header, wire::untagged_size);
    add_vector(terminate_payload_.data(), terminate_size_);
    std::uint32_t crc = 0;
    if (agreed_.crc) {
        crc = wire::crc32c(0, header, wire::untagged_size);
        crc = wire::crc32c(crc, terminate_payload_.data(), terminate_size_);
    }
    end_fpdu(crc, wire::untagged_size - wire::length_size + terminate_size_);
    state_.to(connection_state::terminating, "the Terminate is next");
}

// An RDMA Write of nothing, of which the peer looks at neither tag nor offset (RFC 5041 5.2). It is the first FPDU
// where the layer above has nothing to say yet, as a ready-to-receive message is (RFC 6581 4.2).
void connection::add_ready() noexcept
{
    std::byte* const header = scratch(wire::tagged_size);
    add_vector(header, wire::encode(wire::tagged_header{wire::opcode::write, true, 0, 0}, 0, header));
    end_fpdu(agreed_.crc ? wire::crc32c(0, header, wire::tagged_size) : 0,
             wire::tagged_size - wire::length_size);
}

// Chooses the next message. Messages are never interleaved; Read Responses and our own requests
// take turns, so that neither starves the other.
bool connection::start_next() noexcept
{
    for (int tries = 0; tries < 2; ++tries) {
        turn_of_responses_ = !turn_of_responses_;
        if (turn_of_responses_) {
            if (peer_reads_.empty())
                continue;
            const auto [r, is_of_store] = peer_reads_.front();
            if (is_of_store && !has_piece(r, 0)) {
                if (!places())
                    return false;
                continue; // our own requests go meanwhile
            }
            peer_reads_.pop();
            sending_ = {};
            sending_.what = sending_message::kind::response;
            sending_.response = r;
            sending_.is_of_store = is_of_store;
            sending_.length = r.size;
        } else {
            for (;;) {
                if (next_to_send_ == send_queue_.tail())
                    break;
                work& w = send_queue_.at(next_to_send_);
                if (w.fence && !reads_.empty())
                    break;
                if (is_renewal(w.op)) { // done when it was posted, on this shard
                    if (auto& shards = domain_.device().shards(); !shards.is_over(w.remote)) {
                        if (!steering::passing::is_linked())
                            shards.wait(owner_.lane(), w.remote, *this);
                        break;
                    }
                    ++next_to_send_;
                    continue;
                }
                if (w.op == verbs::opcode::local_invalidate) {
                    // It may end connections that owe octets of that memory, and who hears of that takes more away: no octet stands
                    // in a batch meanwhile.
                    if (batch_fpdus_ != 0) {
                        turn_of_responses_ = true; // it is first in the next one
                        return false;
                    }
                    const bool refused = !owner_.table().invalidate(w.key, domain_, scope());
                    if (state_ == connection_state::closed)
                        return false;
                    ++next_to_send_;
                    if (!refused)
                        continue;
                    w.refused = true;
                    sent_through_ = next_to_send_; // no octet of a request stands in a batch
                    batch_is_out();
                    cut(end_cause::local, error(std::errc::invalid_argument,
                                                "local invalidate of a key that is not valid here"));
                    return false;
                }
                if (w.op == verbs::opcode::rdma_read && reads_.size() >= agreed_.ord) {
                    if (!ord_waiting_)
                        context_impl::add(owner_.stats().read_depth_waits, 1);
                    ord_waiting_ = true;
                    break;
                }
                ord_waiting_ = false;
                // Without one it goes all the same: what stands behind it may be replies, whose memory is what others wait for.
                if (w.op == verbs::opcode::rdma_read)
                    (void)take_reserve();
                sending_ = {};
                sending_.what = sending_message::kind::work;
                sending_.work_index = next_to_send_++;
                sending_.length = w.op == verbs::opcode::rdma_read ? 0 : w.length;
                if (w.op == verbs::opcode::write_with_immediate && w.length == 0)
                    sending_.what = sending_message::kind::immediate; // there is nothing to write
                break;
            }
            if (sending_.what == sending_message::kind::none)
                continue;
        }
        if (since_sizing_ >= sizing_interval)
            size_fpdus();
        since_sizing_ += sending_.length;
        sending_.step = fpdu_of(sending_.length);
        return true;
    }
    return false;
}

void connection::fail_response(const steering_check& check) noexcept
{
    refuse(check.fault, end_cause::access_error, check.rule, quote::nothing);
    sending_.what = sending_message::kind::none;
}

// Adds one FPDU of the message in hand; a Read Response whose grant has gone makes way for a Terminate.
void connection::add_segment() noexcept
{
    std::uint32_t payload = std::min(sending_.step, sending_.length - sending_.offset);
    if (sending_.is_of_store) {
        const std::uint64_t from = sending_.response.source_offset + sending_.offset - stores_->piece;
        payload = static_cast<std::uint32_t>(std::min<std::uint64_t>(payload, stores_->piece_size - from));
    }
    const bool last = sending_.offset + payload == sending_.length;
    std::uint32_t crc = 0;
    std::size_t ulpdu = 0;
    const auto add_header = [&](std::byte* header, std::size_t size) {
        ulpdu = size - wire::length_size + payload;
        add_vector(header, size);
        if (agreed_.crc)
            crc = wire::crc32c(0, header, size);
    };
    const auto add_payload = [&](const std::byte* data, std::size_t size) {
        add_vector(data, size);
        if (agreed_.crc)
            crc = wire::crc32c(crc, data, size);
    };

    if (sending_.what == sending_message::kind::response) {
        const wire::read_request& r = sending_.response;
        const std::byte* source = nullptr;
        if (payload != 0) {
            // Looked up for every FPDU: the grant may have gone while the socket was full.
            const auto check = check_again(r.source_stag, r.source_offset + sending_.offset, payload,
                                           verbs::access::remote_read, sending_.is_of_store);
            if (check.rule != nullptr) {
                fail_response(check);
                return;
            }
            source = check.address;
            if (sending_.is_of_store) { // a copy of it, which is this connection's
                source =
                    stores_->reader->buffer().data() + (r.source_offset + sending_.offset - stores_->piece);
                stores_->is_in_batch = true;
            } else {
                response_tags_.push_back(r.source_stag);
            }
        }
        std::byte* header = scratch(wire::tagged_size);
        const wire::tagged_header h{wire::opcode::read_response, last, r.sink_stag,
                                    r.sink_offset + sending_.offset};
        add_header(header, wire::encode(h, payload, header));
        add_payload(source, payload);
        end_fpdu(crc, ulpdu);
        sending_.offset += payload;
        if (last) {
            sending_.what = sending_message::kind::none;
            if (sending_.is_of_store)
                stores_->piece_size = 0;
        }
        return;
    }

    work& w = send_queue_.at(sending_.work_index);
    switch (w.op) {
    case verbs::opcode::rdma_read: {
        const std::uint32_t tag = w.key;
        outstanding_read read{sending_.work_index, w.segments[0].address,
                              owner_.table().fresh_tag(owner_.slots()), w.length, 0};
        reads_.push(read);
        if (read.length >= iwarp::domain::bulk)
            bulk_read_bytes_ += read.length;
        std::byte* header = scratch(wire::read_request_size);
        const wire::untagged_header h{wire::opcode::read_request, true, 0, wire::queue_read,
                                      ++read_sequence_,           0};
        wire::encode(h, wire::read_request_size - wire::untagged_size, header);
        const wire::read_request r{read.stag, reinterpret_cast<std::uint64_t>(read.sink), read.length, tag,
                                   w.remote};
        wire::encode(r, header + wire::untagged_size);
        add_header(header, wire::read_request_size);
        break;
    }
    case verbs::opcode::write_with_immediate:
    case verbs::opcode::rdma_write: {
        std::byte* header = scratch(wire::tagged_size);
        const wire::tagged_header h{wire::opcode::write, last, w.key, w.remote + sending_.offset};
        add_header(header, wire::encode(h, payload, header));
        break;
    }
    default: {
        if (sending_.offset == 0)
            ++send_sequence_;
        std::byte* header = scratch(wire::untagged_size);
        const bool invalidate = w.op == verbs::opcode::send_with_invalidate;
        const wire::untagged_header h{invalidate ? wire::opcode::send_invalidate : wire::opcode::send,
                                      last,
                                      invalidate ? w.key : 0,
                                      wire::queue_send,
                                      send_sequence_,
                                      sending_.offset};
        add_header(header, wire::encode(h, payload, header));
        break;
    }
    }
    for (std::uint32_t left = payload; left > 0;) {
        const verbs::segment& s = w.segments[sending_.segment];
        const std::uint32_t part = std::min(left, s.length - sending_.segment_offset);
        add_payload(s.address + sending_.segment_offset, part);
        left -= part;
        sending_.segment_offset += part;
        if (sending_.segment_offset == s.length) {
            ++sending_.segment;
            sending_.segment_offset = 0;
        }
    }
    end_fpdu(crc, ulpdu);
    sending_.offset += payload;
    if (!last)
        return;
    const bool goes_on =
        w.op == verbs::opcode::write_with_immediate || w.op == verbs::opcode::send_with_immediate;
    sending_.what = goes_on ? sending_message::kind::immediate : sending_message::kind::none;
}

// RFC 7306 6: what tells the peer of the Write before it, or belongs to the Send before it.
void connection::add_immediate() noexcept
{
    std::byte* const header = scratch(wire::untagged_size + wire::immediate_size);
    const wire::untagged_header h{wire::opcode::immediate, true, 0, wire::queue_send, ++send_sequence_, 0};
    wire::encode(h, wire::immediate_size, header);
    std::byte* const data = header + wire::untagged_size;
    wire::store32(data, send_queue_.at(sending_.work_index).immediate);
    wire::store32(data + 4, 0);
    constexpr std::size_t size = wire::untagged_size + wire::immediate_size;
    add_vector(header, size);
    end_fpdu(agreed_.crc ? wire::crc32c(0, header, size) : 0, size - wire::length_size);
    sending_.what = sending_message::kind::none;
}

// What all batches need; false: there is no memory for it, and the connection has ended.
bool connection::prepare_batches() noexcept
{
    try {
        vectors_.reserve(max_batch * (max_segments + 2)); // with a header and a trailer each
        response_tags_.reserve(max_batch);
        scratch_ = std::make_unique<scratch_memory>();
    } catch (const std::bad_alloc&) {
        cut(end_cause::local, error(std::errc::not_enough_memory, "memory to send by"));
        return false;
    }
    return true;
}

// Fills the batch; false if there is nothing to send, or the connection has ended.
bool connection::build() noexcept
{
    vectors_.clear();
    vectors_done_ = 0;
    scratch_used_ = 0;
    batch_fpdus_ = 0;
    response_tags_.clear();
    if (stores_ != nullptr)
        batch_had_piece();
    if (!scratch_ && !prepare_batches())
        return false;
    built_ = true;
    owner_.idle().grown(*this);
    std::size_t bytes = 0;
    while (batch_fpdus_ < max_batch && bytes < max_batch_bytes) {
        if (sending_.what == sending_message::kind::none) {
            if (state_ == connection_state::refusing)
                add_terminate();
            if (state_ == connection_state::terminating || !start_next())
                break;
        }
        if (sending_.is_of_store && waits_for_piece()) {
            if (sending_.what == sending_message::kind::none)
                continue; // a Terminate goes in its place
            break;
        }
        bytes += sending_.step;
        if (sending_.what == sending_message::kind::immediate)
            add_immediate();
        else
            add_segment();
    }
    // A work request is out when no byte of it is left to build.
    const bool of_work =
        sending_.what == sending_message::kind::work || sending_.what == sending_message::kind::immediate;
    sent_through_ = of_work ? sending_.work_index : next_to_send_;
    return !vectors_.empty();
}

bool connection::turn_is_over() const noexcept
{
    return turn_sends_ >= max_sends_per_turn || turn_bytes_ >= max_bytes_per_turn;
}

void connection::go_on_later() noexcept
{
    if (!deferred::is_linked())
        shard().post_last(*this);
}

// What is left of the batch waits: a grant that is revoked meanwhile must find whom it is owed to. False: there is no memory
// to note that, and the connection has ended.
bool connection::hold_back() noexcept
{
    if (response_tags_.empty() || blocked_registered_)
        return true;
    if (!owner_.note_debt(*this)) {
        cut(end_cause::local, error(std::errc::not_enough_memory, "what is owed to a peer"));
        return false;
    }
    blocked_registered_ = true;
    return true;
}

// Hands the batch to the socket; false if the socket is full or gone, or if this turn had enough.
bool connection::flush() noexcept
{
    while (vectors_done_ < vectors_.size()) {
        if (turn_is_over()) {
            if (hold_back())
                go_on_later();
            return false;
        }
        msghdr m{};
        m.msg_iov = &vectors_[vectors_done_];
        m.msg_iovlen = vectors_.size() - vectors_done_;
        told_peers(&domain_);
        const ssize_t n = ::sendmsg(fd_.get(), &m, MSG_DONTWAIT | MSG_NOSIGNAL);
        context_impl::add(owner_.stats().sends, 1);
        ++turn_sends_;
        if (n < 0) {
            if (errno == EINTR)
                continue;
            if (errno == EAGAIN || errno == EWOULDBLOCK) {
                write_blocked_ = true;
                if (hold_back())
                    want_write();
                return false;
            }
            const error cause = error::from_errno(errno, "send to the peer");
            // It may have said why.
            if (!is_parked())
                receive(&cause);
            finish(end_cause::peer_reset, cause);
            return false;
        }
        context_impl::add(owner_.stats().bytes_sent, static_cast<std::uint64_t>(n));
        turn_bytes_ += static_cast<std::size_t>(n);
        std::size_t left = static_cast<std::size_t>(n);
        while (left > 0) {
            iovec& v = vectors_[vectors_done_];
            const std::size_t part = std::min(left, v.iov_len);
            v.iov_base = static_cast<std::byte*>(v.iov_base) + part;
            v.iov_len -= part;
            left -= part;
            if (v.iov_len == 0)
                ++vectors_done_;
        }
    }
    if (std::exchange(blocked_registered_, false))
        owner_.clear_debt(*this);
    response_tags_.clear();
    return true;
}

bool connection::owes_what_is_gone() const noexcept
{
    return std::ranges::any_of(response_tags_,
                               [this](std::uint32_t stag) { return !owner_.table().stands(stag); });
}

// The kernel has copied or holds every byte: the memory is the caller's again.
void connection::batch_is_out() noexcept
{
    for (std::uint64_t i = send_queue_.head(); i < sent_through_; ++i) {
        work& w = send_queue_.at(i);
        if (w.op != verbs::opcode::rdma_read)
            w.done = true;
    }
    retire();
}

void connection::transmit() noexcept
{
    if (write_blocked_)
        return;
    const steering::section here(owner_.lane());
    if (first_ == first_fpdu::awaited) {
        // A FIN is no FPDU. With something posted the end waits for the peer, until close_timeout.
        if (is_draining() && send_queue_.empty())
            shut_sending();
        return;
    }
    turn_sends_ = 0;
    turn_bytes_ = 0;
    for (;;) {
        if (vectors_done_ < vectors_.size()) {
            if (!flush())
                return;
        }
        batch_is_out();
        if (state_.is_in(connection_state::closing, connection_state::closed))
            return;
        const bool built = build();
        if (state_ == connection_state::closed)
            return;
        const bool owes_first = first_ == first_fpdu::owed && connected();
        if (!built && !owes_first)
            break;
        if (!built)
            add_ready();
        first_ = first_fpdu::passed;
    }
    batch_is_out(); // of what sends nothing
    const bool answers = !peer_reads_.empty() || sending_.what == sending_message::kind::response;
    const bool drained = is_draining() && send_queue_.empty() && !answers;
    if (state_ == connection_state::terminating || drained)
        shut_sending();
}

} // namespace verbena::iwarp
