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
            verbs::send_request w; // id 0: operation::write
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
    // One is the least that keeps a requester alive.
    const std::uint32_t granted =
        credits_.grant(std::max(1u, c.transport_.credits), is_short_of_receives(), provider_.shard().now());
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
    if (!down() && queue_pair_->connected())
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
    // All waits come first: from here to the post nothing suspends, so the batch is this call's alone.
    const bool registered = !provider_.query().needs_local_keys || co_await register_results(c);
    const reply_form form = form_of(c);
    if (registered && !take_send_memory(c, form.memory))
        c.send_memory_ = co_await buffers_.acquire(form.memory, buffer_pool::call_patience);
    if (!c.send_memory_)
        end_unanswered(no_memory);
    if (!c.send_memory_ || !co_await send_queue_room(requests_of(c))) {
        release(c);
        co_return;
    }
    if (!build_reply(c, form, invalidate)) {
        // The requester's estimate was too small, as that of a typed client for its first large results. It tries again
        // with more room, under a new XID.
        log_limited(
            stats_.refusals_logged, log_level::debug, "rpcrdma", "reply does not fit the requester's chunks",
            {{"peer", peer_name_}, {"call", trace_name(c.trace())}, {"bytes", c.results_.position()}});
        c.attached_.clear();
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
    if (!form.is_long)
        c.results_memory_.reset();
    std::uint64_t kept = c.results_memory_ ? c.results_memory_.size() : 0;
    for (std::size_t item = 0; item < c.attached_.size(); ++item) {
        rpc::payload& bytes = c.attached_[item].bytes;
        if (!form.is_long && !form.gathers && !goes_by_chunk(c, item))
            bytes.clear();
        for (std::size_t i = 0; i < bytes.pieces().size(); ++i)
            kept += bytes.owner(i) ? bytes.owner(i).size() : bytes.pieces()[i].size();
    }
    charge(c, kept);
}

// Remembered replies and a back end's own memory are in no pool.
task<bool> responder_connection::register_results(responder_call& c)
{
    for (std::size_t item = 0; item < c.attached_.size(); ++item) {
        const bool registered = co_await register_payload(c.attached_[item].bytes);
        if (!registered)
            co_return false;
    }
    co_return true;
}

task<bool> responder_connection::register_payload(rpc::payload& payload)
{
    if (std::ranges::all_of(payload.pieces(),
                            [this](auto p) { return queue_pair_->domain().is_registered(p); }))
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

std::uint32_t responder_connection::requests_of(const responder_call& c) noexcept
{
    std::size_t stretches = 2; // behind the last item, and the Send
    for (std::size_t item = 0; item < c.attached_.size(); ++item)
        stretches += c.attached_[item].bytes.pieces().size() + 2;
    const header& h = c.transport_;
    return static_cast<std::uint32_t>(h.writes.segments().size() + h.reply.size() + stretches);
}

responder_connection::reply_form responder_connection::form_of(const responder_call& c) const noexcept
{
    const header& h = c.transport_;
    const auto head = c.results_.bytes();
    reply_form f;
    f.header_size = encoded_size(h); // returned lengths don't change it
    std::size_t segments = 1;        // of a Send that gathers
    std::size_t pads = 0;
    for (std::size_t item = 0; item < c.attached_.size(); ++item) {
        const rpc::payload& bytes = c.attached_[item].bytes;
        if (bytes.empty())
            continue;
        if (goes_by_chunk(c, item)) {
            f.reduced = true;
            continue;
        }
        f.inline_items += xdr::padded(bytes.size());
        pads += xdr::pad_of(bytes.size());
        segments += bytes.pieces().size() + 1;
    }
    f.is_long = f.header_size + head.size() + f.inline_items > terms_.send_threshold;
    f.memory = f.header_size;
    if (!f.is_long) {
        // A provider whose Sends gather too little has inline payloads copied, and so are small ones: their memory may
        // be large, and a Send may take long to complete.
        f.gathers = f.inline_items > small_item && segments <= provider_.query().max_send_segments;
        f.memory += head.size() + (f.gathers ? pads : f.inline_items);
    } else if (provider_.query().needs_local_keys) {
        // The pads, and results that stand in the call itself.
        f.copies_head = !queue_pair_->domain().is_registered(head);
        f.memory += (f.copies_head ? head.size() : 0) + zero_pad.size();
    }
    return f;
}

// Fills batch_ with the Writes and the Send of a reply; false if it fits nowhere.
bool responder_connection::build_reply(responder_call& c, const reply_form& form, std::uint32_t invalidate)
{
    header& h = c.transport_;
    batch_.clear();
    local_.clear();
    std::uint64_t chunk_bytes = 0;

    for (std::size_t i = 0; i < h.writes.size(); ++i) {
        const auto chunk = h.writes.chunk(i);
        std::uint64_t returned = 0;
        if (i < c.attached_.size() && !chunk.empty()) {
            chunk_writer writer(chunk, batch_, local_);
            for (const auto& piece : c.attached_[i].bytes.pieces())
                writer.add(piece);
            if (writer.full())
                return false;
            returned = writer.written();
            chunk_bytes += returned;
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
        const auto head = c.results_.bytes();
        std::span<const std::byte> results = head;
        std::span<const std::byte> zeros = zero_pad;
        if (provider_.query().needs_local_keys) {
            const auto behind = c.send_memory_.bytes().subspan(form.header_size);
            std::ranges::copy(zero_pad, behind.begin());
            zeros = behind.first(zero_pad.size());
            if (form.copies_head) {
                results = behind.subspan(zero_pad.size(), head.size());
                std::memcpy(behind.data() + zero_pad.size(), head.data(), head.size());
            }
        }
        chunk_writer writer(h.reply.all(), batch_, local_);
        c.results_.in_order(
            [&](std::span<const std::byte> bytes) {
                writer.add(
                    results.subspan(static_cast<std::size_t>(bytes.data() - head.data()), bytes.size()));
            },
            [&](std::size_t item) {
                if (goes_by_chunk(c, item))
                    return;
                const rpc::payload& bytes = c.attached_[item].bytes;
                for (const auto& piece : bytes.pieces())
                    writer.add(piece);
                writer.add(zeros.first(xdr::pad_of(bytes.size())));
            });
        if (writer.full())
            return false;
        reply_bytes = writer.written();
        h.proc = procedure::nomsg;
    }
    if (h.has_reply_chunk && !set_returned_length(h.reply.all(), reply_bytes))
        return false;
    h.credits = grant(c);

    const std::size_t first = local_.size();
    build_send(c, form);
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

// Puts what the Send carries behind each other in its memory, but for the payloads that it gathers from where they are.
void responder_connection::build_send(responder_call& c, const reply_form& form)
{
    xdr::encoder out(c.send_memory_.bytes());
    encode(out, c.transport_);
    std::size_t begun = 0; // of the segment being filled
    const auto end_segment = [&] {
        if (out.size() != begun)
            local_.push_back(
                {c.send_memory_.data() + begun, static_cast<std::uint32_t>(out.size() - begun), 0});
        begun = out.size();
    };
    const auto put = [&](std::span<const std::byte> bytes) {
        std::memcpy(out.reserve(bytes.size()).data(), bytes.data(), bytes.size());
    };
    if (!form.is_long) {
        c.results_.in_order(put, [&](std::size_t item) {
            if (goes_by_chunk(c, item))
                return;
            const rpc::payload& bytes = c.attached_[item].bytes;
            for (const auto& piece : bytes.pieces()) {
                if (piece.empty())
                    continue;
                if (form.gathers) {
                    end_segment();
                    local_.push_back(
                        {const_cast<std::byte*>(piece.data()), static_cast<std::uint32_t>(piece.size()), 0});
                } else {
                    put(piece);
                    stats_.payload_copied_bytes.add(piece.size());
                }
            }
            out.pad(bytes.size());
        });
    }
    end_segment();
}

} // namespace verbena::rpcrdma
