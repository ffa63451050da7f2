// SPDX-License-Identifier: Apache-2.0
// How a call is answered: what goes inline, what by RDMA Writes, in one batch.
#include "responder_connection.hpp"

#include <verbena/core/log.hpp>

#include <algorithm>
#include <cstring>

namespace verbena::rpcrdma {
namespace {

/// Fills a chunk's segments one after another by RDMA Writes. Borrows all it is given; the vectors
/// must not grow beyond their capacity, since requests point at the segments.
class chunk_writer {
public:
    chunk_writer(std::span<const segment> chunk, std::vector<verbs::send_request>& batch,
                 std::vector<verbs::segment>& local) noexcept
        : chunk_(chunk), batch_(batch), local_(local)
    {
    }
    void add(std::span<const std::byte> bytes)
    {
        while (!bytes.empty() && !full_) {
            while (index_ < chunk_.size() && used_ == chunk_[index_].length) {
                ++index_;
                used_ = 0;
            }
            if (index_ == chunk_.size() || batch_.size() + 1 >= batch_.capacity() ||
                local_.size() == local_.capacity()) {
                full_ = true;
                return;
            }
            const segment& s = chunk_[index_];
            const std::size_t part = std::min<std::size_t>(bytes.size(), s.length - used_);
            local_.push_back({const_cast<std::byte*>(bytes.data()), static_cast<std::uint32_t>(part), 0});
            verbs::send_request w;
            w.opcode = verbs::opcode::rdma_write;
            w.signalled = false;
            w.segments = {&local_.back(), 1};
            w.remote_address = s.offset + used_;
            w.remote_key = s.handle;
            batch_.push_back(w);
            used_ += part;
            written_ += part;
            bytes = bytes.subspan(part);
        }
    }
    /// The chunk was too small for what was added.
    bool full() const noexcept { return full_; }
    std::uint64_t written() const noexcept { return written_; }

private:
    std::span<const segment> chunk_;
    std::vector<verbs::send_request>& batch_;
    std::vector<verbs::segment>& local_;
    std::size_t index_ = 0;
    std::size_t used_ = 0;
    std::uint64_t written_ = 0;
    bool full_ = false;
};

constexpr std::array<std::byte, 4> zero_pad{};
constexpr std::size_t small_item = 4096;

} // namespace

std::uint32_t responder_connection::grant(const responder_call& c) noexcept
{
    // Receives that stand are what may be promised; one is the least that keeps a requester alive.
    const auto standing = static_cast<std::uint32_t>(receive_slots_.size() - empty_slots_.size());
    const std::uint32_t room = standing > receive_slack ? standing - receive_slack : 1;
    const std::uint32_t granted =
        std::max(1u, std::min({std::max(1u, c.transport_.credits), credits_, room}));
    stats_.credits_granted.add(granted);
    return granted;
}

// RFC 8797 3.2: one key of this call's own chunks, only if both ends said so. With several keys the
// requester must invalidate the rest itself and gains nothing.
std::uint32_t responder_connection::key_to_invalidate(const responder_call& c) const noexcept
{
    if (!terms_.remote_invalidation)
        return 0;
    std::uint32_t key = 0;
    bool several = false;
    const auto see = [&](std::uint32_t handle) {
        several = several || (key != 0 && key != handle);
        key = handle;
    };
    for (const auto& s : c.transport_.reads.all())
        see(s.target.handle);
    for (const auto& s : c.transport_.writes.segments())
        see(s.handle);
    if (c.transport_.has_reply_chunk) {
        for (const auto& s : c.transport_.reply.all())
            see(s.handle);
    }
    return several ? 0 : key;
}

// A reply frees more than it takes, so it waits behind nobody if it can be helped: it has the buffer that the call came in,
// or what is free, whoever waits for a larger one. False: it must wait.
bool responder_connection::take_send_memory(responder_call& c, std::size_t size)
{
    if (c.send_memory_)
        return true;
    const bool fits = c.received_ && c.received_.unique() && c.received_.size() >= size;
    // Rather a small one than keep a large one until the Send completes.
    if (!fits || c.received_.size() > buffer_pool::min_size)
        c.send_memory_ = buffers_.try_acquire(size);
    if (!c.send_memory_ && fits)
        c.send_memory_ = std::move(c.received_);
    c.received_.reset();
    return bool(c.send_memory_);
}

task<void> responder_connection::reply_error(responder_call& c, error_kind kind)
{
    (kind == error_kind::version ? stats_.version_errors : stats_.chunk_errors).add();
    c.assembled_.reset();
    c.results_memory_.reset();
    if (!take_send_memory(c, buffer_pool::min_size))
        c.send_memory_ = co_await buffers_.acquire(buffer_pool::min_size, buffer_pool::call_patience);
    if (!c.send_memory_)
        end_unanswered(no_memory);
    if (!c.send_memory_ || !co_await send_queue_room(1)) {
        release(c);
        co_return;
    }
    xdr::encoder out(c.send_memory_.bytes());
    encode(out, error_reply(c.transport_, kind, grant(c)));
    const verbs::segment local{c.send_memory_.data(), static_cast<std::uint32_t>(out.size()), 0};
    verbs::send_request w;
    w.id = make_id(operation::send, c.generation_, c.index_);
    w.segments = {&local, 1};
    (void)post_reply(c, {&w, 1});
}

// A call without an answer would leave its requester waiting for ever (RFC 8166 4.5.3). A connection that ends already is
// left to say why.
void responder_connection::end_unanswered(const error& cause) noexcept
{
    if (!down_ && queue_pair_->connected())
        give_up(cause);
}

void responder_connection::end_after_failed_read(const responder_call& c) noexcept
{
    if (c.read_failed_)
        end_unanswered(error(std::errc::io_error, "an RDMA Read of a call failed"));
}

result<void> responder_connection::post_reply(responder_call& c, std::span<verbs::send_request> batch)
{
    c.posted_ = static_cast<std::uint32_t>(batch.size());
    send_queue_used_ += c.posted_;
    auto posted = queue_pair_->post_send(batch);
    if (!posted) {
        send_queue_used_ -= c.posted_;
        release(c);
        end_unanswered(posted.error());
        return posted;
    }
    c.answered_ = true;
    --unanswered_;
    return posted;
}

task<void> responder_connection::reply(responder_call& c)
{
    header& h = c.transport_;
    const std::uint32_t invalidate = key_to_invalidate(c);
    h.reads.clear(); // RFC 8166 4.3.1
    h.version = protocol_version;
    h.proc = procedure::msg;
    c.assembled_.reset(); // the arguments
    // Both waits come first: from here to the post nothing suspends, so the batch is this call's alone.
    const bool registered = co_await register_payload(c.result_payload_);
    const reply_form form = form_of(c);
    if (registered && !take_send_memory(c, form.memory))
        c.send_memory_ = co_await buffers_.acquire(form.memory, buffer_pool::call_patience);
    if (!c.send_memory_)
        end_unanswered(no_memory);
    if (!c.send_memory_ || !co_await send_queue_room(max_reply_requests)) {
        release(c);
        co_return;
    }
    if (!build_reply(c, form, invalidate)) {
        // The requester's estimate was too small. It may try again with more room, under a new XID.
        log_limited(stats_.refusals_logged, log_level::warning, "rpcrdma",
                    "reply does not fit the requester's chunks",
                    {{"peer", peer_name_}, {"bytes", c.results_.size() + c.result_payload_.size()}});
        c.result_payload_.clear();
        co_await reply_error(c, error_kind::chunk);
        co_return;
    }
    if (invalidate != 0)
        stats_.remote_invalidations.add();
    keep_for_send(c, form);
    (void)post_reply(c, batch_);
}

// Until the Send completes, for which the requester can make us wait. What is kept counts as what it is, whatever the call
// was to move.
void responder_connection::keep_for_send(responder_call& c, const reply_form& form) noexcept
{
    if (!form.is_long) {
        c.results_memory_.reset();
        if (!form.reduced && !form.gathers)
            c.result_payload_.clear();
    }
    std::uint64_t kept = c.results_memory_ ? c.results_memory_.size() : 0;
    for (std::size_t i = 0; i < c.result_payload_.pieces().size(); ++i)
        kept += c.result_payload_.owner(i) ? c.result_payload_.owner(i).size() : 0;
    charge(c, kept);
}

// Remembered replies and a back end's own memory are in no pool.
task<bool> responder_connection::register_payload(rpc::payload& payload)
{
    if (!provider_.query().needs_local_keys || std::ranges::all_of(payload.pieces(), [this](auto p) {
            return queue_pair_->domain().is_registered(p);
        }))
        co_return true;
    lease memory = buffers_.try_acquire(payload.size());
    if (!memory)
        memory = co_await buffers_.acquire(payload.size(), buffer_pool::call_patience);
    if (!memory)
        co_return false;
    std::size_t filled = 0;
    for (auto piece : payload.pieces()) {
        std::memcpy(memory.data() + filled, piece.data(), piece.size());
        filled += piece.size();
    }
    stats_.payload_copied_bytes.add(filled);
    const std::span<const std::byte> bytes(memory.data(), filled);
    payload = rpc::payload(std::move(memory), bytes);
    co_return true;
}

responder_connection::reply_form responder_connection::form_of(const responder_call& c) const noexcept
{
    const header& h = c.transport_;
    const auto head = c.results_.bytes();
    reply_form f;
    f.header_size = encoded_size(h); // returned lengths don't change it
    f.has_item = !c.results_.payloads().empty() && !c.result_payload_.empty();
    // RFC 8166 4.3.2: the first Write chunk takes the reply's data item; an empty one wants it inline.
    f.reduced = f.has_item && !h.writes.empty() && !h.writes.chunk(0).empty();
    f.pad = f.has_item ? (0 - c.result_payload_.size()) & 3 : 0;
    f.inline_item = f.has_item && !f.reduced ? c.result_payload_.size() + f.pad : 0;
    f.is_long = f.header_size + head.size() + f.inline_item > terms_.send_threshold;
    f.memory = f.header_size;
    if (!f.is_long) {
        // A provider whose Sends gather too little has an inline payload copied, and so is a small one: its memory may
        // be large, and a Send may take long to complete.
        f.gathers = f.inline_item > small_item &&
                    c.result_payload_.pieces().size() + 2 <= provider_.query().max_send_segments;
        f.memory += head.size() + (f.gathers ? f.pad : f.inline_item);
    } else if (provider_.query().needs_local_keys) {
        // The pad, and results that stand in the call itself.
        f.copies_head = !queue_pair_->domain().is_registered(head);
        f.memory += (f.copies_head ? head.size() : 0) + zero_pad.size();
    }
    return f;
}

// Fills batch_ with the Writes and the Send of a reply; false if it fits nowhere.
bool responder_connection::build_reply(responder_call& c, const reply_form& form, std::uint32_t invalidate)
{
    header& h = c.transport_;
    const auto head = c.results_.bytes();
    const std::size_t header_size = form.header_size;
    const std::size_t pad = form.pad;
    const std::size_t inline_item = form.inline_item;
    const std::size_t item_offset = form.has_item ? c.results_.payloads().front().offset : head.size();
    batch_.clear();
    local_.clear();
    std::uint64_t chunk_bytes = 0;

    for (std::size_t i = 0; i < h.writes.size(); ++i) {
        const auto chunk = h.writes.chunk(i);
        std::uint64_t returned = 0;
        if (i == 0 && form.reduced) {
            chunk_writer writer(chunk, batch_, local_);
            for (const auto& piece : c.result_payload_.pieces())
                writer.add(piece);
            if (writer.full())
                return false;
            returned = chunk_bytes = writer.written();
        }
        if (!set_returned_length(chunk, returned))
            return false;
    }

    std::uint64_t reply_bytes = 0;
    if (form.is_long) {
        if (!h.has_reply_chunk)
            return false;
        // The whole stream, pads included (RFC 8166 3.5.3). Where Writes need registered memory, the pad
        // stands behind the header, and so may the results.
        auto results = head;
        std::span<const std::byte> zeros = zero_pad;
        if (provider_.query().needs_local_keys) {
            const auto behind = c.send_memory_.bytes().subspan(header_size);
            std::ranges::copy(zero_pad, behind.begin());
            zeros = behind.first(zero_pad.size());
            if (form.copies_head) {
                results = behind.subspan(zero_pad.size(), head.size());
                std::memcpy(behind.data() + zero_pad.size(), head.data(), head.size());
            }
        }
        chunk_writer writer(h.reply.all(), batch_, local_);
        writer.add(results.first(item_offset));
        if (inline_item != 0) {
            for (const auto& piece : c.result_payload_.pieces())
                writer.add(piece);
            writer.add(zeros.first(pad));
        }
        writer.add(results.subspan(item_offset));
        if (writer.full())
            return false;
        reply_bytes = writer.written();
        h.proc = procedure::nomsg;
    }
    if (h.has_reply_chunk && !set_returned_length(h.reply.all(), reply_bytes))
        return false;
    h.credits = grant(c);

    xdr::encoder out(c.send_memory_.bytes());
    encode(out, h);
    const std::size_t first = local_.size();
    const auto add_segment = [&](const std::byte* data, std::size_t size) {
        if (size != 0)
            local_.push_back({const_cast<std::byte*>(data), static_cast<std::uint32_t>(size), 0});
    };
    std::byte* const memory = c.send_memory_.data();
    if (form.is_long) {
        add_segment(memory, header_size);
    } else {
        std::memcpy(memory + header_size, head.data(), item_offset);
        add_segment(memory, header_size + item_offset);
        std::byte* rest = memory + header_size + item_offset;
        const std::size_t rest_pad = inline_item != 0 ? pad : 0;
        if (inline_item != 0) {
            for (const auto& piece : c.result_payload_.pieces()) {
                if (form.gathers) {
                    add_segment(piece.data(), piece.size());
                } else if (!piece.empty()) {
                    std::memcpy(rest, piece.data(), piece.size());
                    rest += piece.size();
                    stats_.payload_copied_bytes.add(piece.size());
                }
            }
        }
        std::memset(rest, 0, rest_pad);
        std::memcpy(rest + rest_pad, head.data() + item_offset, head.size() - item_offset);
        rest += rest_pad + head.size() - item_offset;
        if (inline_item != 0 && form.gathers)
            add_segment(rest - (rest_pad + head.size() - item_offset), rest_pad + head.size() - item_offset);
        else
            local_[first].length = static_cast<std::uint32_t>(rest - memory);
    }
    const std::size_t segments = local_.size() - first;
    if (segments > provider_.query().max_send_segments)
        return false;
    verbs::send_request w;
    w.id = make_id(operation::send, c.generation_, c.index_);
    w.opcode = invalidate != 0 ? verbs::opcode::send_with_invalidate : verbs::opcode::send;
    w.segments = {&local_[first], segments};
    w.invalidate_key = invalidate;
    batch_.push_back(w);

    (form.is_long   ? stats_.reply_chunk_replies
     : form.reduced ? stats_.write_chunk_replies
                    : stats_.inline_replies)
        .add();
    stats_.write_chunk_bytes.add(chunk_bytes + reply_bytes);
    return true;
}

} // namespace verbena::rpcrdma
