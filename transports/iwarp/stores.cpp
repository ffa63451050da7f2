// SPDX-License-Identifier: Apache-2.0
// What a peer reads and writes that is no memory, but a store: payload goes by a buffer, as the store may wait for a
// disk. The buffer is of the shard's pool and for one access: who wants the next one stands in line for it.
//
// A Write's payload is staged, and written out when its message ends, when the buffer is full and when anything else comes. Nothing else
// begins before that is over. So a Send, or the response to a Read, tells the peer that the Writes before it are in their stores.
#include "queue_pair.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>

namespace verbena::iwarp {
namespace {

using steering::store_progress;

// Payload of an FPDU, at most.
constexpr std::size_t largest_payload = 65536;
static_assert(steering::store_buffers::least >= largest_payload);
// Then what is staged is written, as what is staged of a message that does not go on.
constexpr duration longest_staging = std::chrono::seconds(1);
// Others wait so long before a peer that takes its octets slowly ends for that.
constexpr duration patience_of_others = std::chrono::seconds(1);

} // namespace

void connection::store_waits() noexcept
{
    context_impl::add(owner_.stats().store_waits, 1);
    if (is_parked() && is_writing_store())
        watch_hang_up();
}

bool connection::note_access(store_progress how) noexcept
{
    if (how == store_progress::failed)
        context_impl::add(owner_.stats().store_failures, 1);
    if (state_ != connection_state::closed)
        return true;
    if (stores_->is_writing() || stores_->is_reading())
        return false;
    stores_.reset();
    if (!delivering_)
        tell_end();
    return false;
}

// Who is told of the end counts the connection until then, so that a peer leaves no more to a slow disk than it may have connections.
void connection::leave_stores() noexcept
{
    if (stores_ == nullptr)
        return;
    if (!stores_->is_writing() && !stores_->is_reading()) {
        stores_.reset();
        return;
    }
    stores_->kept.reset();
    stores_->to_read.unlink();
    for (auto* const each : {&stores_->writer, &stores_->reader}) {
        if (*each == nullptr)
            continue;
        if ((*each)->is_busy())
            (*each)->abandon();
        else
            (*each)->release(); // no octet of it is sent any more
    }
}

void connection::stop_stores() noexcept
{
    is_staging_ = false;
    if (stores_ == nullptr)
        return;
    stores_->size = 0;
    stores_->to_write.unlink();
    stores_->to_read.unlink(); // of a response in hand the rest is not sent
    if (stores_->writer != nullptr && !stores_->is_writing())
        stores_->writer->release();
    if (!answers_by_store())
        drop_piece();
}

void connection::drop_piece() noexcept
{
    if (stores_->reader == nullptr || stores_->is_reading())
        return;
    stores_->piece_size = 0;
    if (!stores_->is_in_batch)
        stores_->reader->release();
}

bool connection::prepare(steering::store_access::pointer store_work::* which) noexcept
{
    try {
        if (stores_ == nullptr)
            stores_ = std::make_unique<store_work>(*this);
    } catch (const std::bad_alloc&) { // as below
    }
    if (stores_ != nullptr && (*stores_).*which == nullptr)
        (*stores_).*which = steering::store_access::make(
            shard(), which == &store_work::writer ? stores_->written : stores_->read);
    if (stores_ == nullptr || (*stores_).*which == nullptr) {
        cut(end_cause::local, error(std::errc::not_enough_memory, "an access to a store"));
        return false;
    }
    stores_->is_used = true;
    owner_.idle().grown(*this);
    return true;
}

steering_check connection::check_again(std::uint32_t stag, std::uint64_t offset, std::uint64_t size,
                                       verbs::access want, bool is_of_store) const noexcept
{
    const bool is_read = want == verbs::access::remote_read;
    steering_check check = owner_.table().check(stag, offset, size, want, domain_, scope(), is_read);
    if (check.rule == nullptr && (check.store != nullptr) != is_of_store) {
        check.fault = is_read ? wire::remote_invalid_stag : wire::ddp_invalid_stag;
        check.rule = "a steering tag that names something else by now";
    }
    return check;
}

// --- Writes ---

// A message that is staged has not ended, so a tagged FPDU is its next one, or is refused (begin_tagged()). There is room: see staged().
bool connection::goes_on_with_staged() const noexcept
{
    return (wire::load16(&header_[2]) & wire::flag_tagged) != 0;
}

bool connection::is_behind_stores() noexcept
{
    if (!stores_->is_writing() && stores_->size != 0 && !goes_on_with_staged() && !write_staged())
        return false;
    if (!stores_->is_writing())
        return true;
    park("a write to a store is under way");
    if (stores_->writer->has_waited())
        watch_hang_up();
    return false;
}

bool connection::has_room_to_stage() noexcept
{
    if (!prepare(&store_work::writer))
        return false;
    if (stores_->writer->has_buffer() && stores_->writer->buffer().size() - stores_->size >= payload_size_)
        return true;
    if (!stores_->to_write.is_linked()) {
        // Of a message with more to come nobody knows how long it is.
        const std::size_t size = last_ ? payload_size_ : steering::store_buffers::largest;
        if (auto b = owner_.store_memory().take(size, stores_->to_write, stores_->share)) {
            stores_->writer->put(std::move(b));
            return true;
        }
    }
    park("a write to a store waits for a buffer");
    pauses_.lasts = true;
    pauses_.begun = shard().now();
    watch_hang_up();
    return false;
}

void connection::give_to_write(steering::store_buffer b) noexcept
{
    stores_->writer->put(std::move(b));
    shard().post(go_on_);
}

void connection::stage() noexcept
{
    if (stores_->size == 0) {
        stores_->staged_since = shard().now();
        stores_->stag = tagged_stag_;
        stores_->offset = tagged_next_ - payload_size_;
    }
    target_ = stores_->writer->buffer().data() + stores_->size;
    is_staging_ = true;
}

bool connection::staged() noexcept
{
    is_staging_ = false;
    stores_->size += payload_size_;
    const bool has_room = stores_->writer->buffer().size() - stores_->size >= largest_payload;
    // However little comes at a time: others may wait for the buffer.
    const bool is_new = shard().now() - stores_->staged_since < longest_staging;
    return (has_room && is_new && !last_) || write_staged();
}

bool connection::write_staged() noexcept
{
    // The grant may have gone since the payload came.
    const std::size_t size = std::exchange(stores_->size, 0);
    const auto check = check_again(stores_->stag, stores_->offset, size, verbs::access::remote_write, true);
    if (check.rule != nullptr)
        return refuse(check.fault, end_cause::access_error, check.rule, quote::nothing);
    context_impl::add(owner_.stats().store_accesses, 1);
    stores_->writer->write(*check.store, stores_->offset, size);
    return true;
}

// What the store could not take is dropped: the store tells of it, and a Terminate would end what others do by this connection.
void connection::store_written(store_progress how) noexcept
{
    if (!note_access(how))
        return;
    if (how == store_progress::lost)
        cut(end_cause::local, error(std::errc::not_enough_memory, "memory to write to a store by"));
    else
        go_on_receiving("the write is over");
}

// What was read ahead stays with this connection while a store has it wait, if there is memory: another one, whose
// message waits for memory, may need the context's place, and others read on.
void connection::keep_left_over(std::span<const std::byte> bytes) noexcept
{
    if (bytes.empty()) // nor does it keep a place
        return drop_left_over();
    const bool is_here = stores_ != nullptr && !stores_->left.empty();
    if (!is_here && waits_for_store()) {
        stores_->kept = owner_.store_memory().try_take(bytes.size(), stores_->share);
        if (stores_->kept) {
            std::memcpy(stores_->kept.bytes().data(), bytes.data(), bytes.size());
            owner_.drop_held(*this); // it may have lain there
            stores_->left = stores_->kept.bytes().first(bytes.size());
            return;
        }
    }
    if (is_here)
        stores_->left = bytes;
    else
        owner_.hold_over(*this, bytes);
}

std::span<const std::byte> connection::left_over() const noexcept
{
    return stores_ != nullptr && !stores_->left.empty() ? stores_->left : owner_.held_over(*this);
}

void connection::drop_left_over() noexcept
{
    if (stores_ != nullptr) {
        stores_->left = {};
        stores_->kept.reset();
    }
    owner_.drop_held(*this);
}

// --- Read Responses ---

bool connection::has_piece(const wire::read_request& r, std::uint32_t offset) noexcept
{
    if (!prepare(&store_work::reader))
        return false;
    const std::uint64_t at = r.source_offset + offset;
    if (stores_->is_reading())
        return false;
    if (is_at_hand(at))
        return true;
    if (stores_->is_in_batch) // the next batch has it
        return false;
    std::size_t size = std::min<std::size_t>(steering::store_buffers::largest, r.size - offset);
    if (std::exchange(stores_->piece_size, 0) != 0)
        stores_->reader->release(); // others have their turn
    if (!stores_->reader->has_buffer()) {
        if (stores_->to_read.is_linked())
            return false;
        auto b = owner_.store_memory().take(size, stores_->to_read, stores_->share);
        if (!b)
            return false;
        stores_->reader->put(std::move(b));
    }
    size = std::min(size, stores_->reader->buffer().size());
    // Whole FPDUs where they are large, as the peer may expect the next one to be as long as the one before.
    const std::size_t step = offset != 0 ? sending_.step : fpdu_of(r.size);
    if (step >= large_fpdu && size < r.size - offset && size > step)
        size -= size % step;
    const auto check = check_again(r.source_stag, at, size, verbs::access::remote_read, true);
    if (check.rule != nullptr) {
        fail_response(check);
        return false;
    }
    stores_->piece = at;
    stores_->piece_size = size;
    context_impl::add(owner_.stats().store_accesses, 1);
    stores_->reader->read(*check.store, at, size);
    return false;
}

void connection::give_to_read(steering::store_buffer b) noexcept
{
    stores_->reader->put(std::move(b));
    watch_piece(); // the socket may be full of something else
    ring_doorbell();
}

void connection::piece_read(store_progress how) noexcept
{
    if (!note_access(how))
        return;
    // The peer would take zeros for what the file has, so the connection ends.
    if (how != store_progress::done) {
        stores_->piece_size = 0;
        stores_->reader->release();
        if (sending_.is_of_store)
            sending_.what = sending_message::kind::none;
        refuse(wire::stream_catastrophic, end_cause::store_failed, "a store can't be read", quote::nothing);
    } else if (places() || answers_by_store()) {
        watch_piece();
    } else {
        drop_piece(); // the response does not begin any more
    }
    ring_doorbell(); // also for a Terminate that waits behind it
}

bool connection::waits_for_piece() noexcept
{
    if (state_ == connection_state::refusing &&
        !is_at_hand(sending_.response.source_offset + sending_.offset)) {
        sending_.what = sending_message::kind::none; // the rest is not sent
        drop_piece();
    }
    if (sending_.what == sending_message::kind::none)
        return true;
    return !has_piece(sending_.response, sending_.offset);
}

// The octets of a piece have gone out that are the last of it.
void connection::batch_had_piece() noexcept
{
    if (std::exchange(stores_->is_in_batch, false) && stores_->piece_size == 0)
        stores_->reader->release();
}

// The timer is armed once for many pieces.
void connection::watch_piece() noexcept
{
    stores_->held_since = shard().now();
    if (!stores_->held.is_armed())
        shard().timers().arm(stores_->held, stores_->held_since + owner_.options().fpdu_limit);
}

// Else a peer would keep a buffer, or the one that goes round, by taking an octet now and then.
void connection::on_store_limit() noexcept
{
    const auto is_held = [this] {
        return stores_ != nullptr && stores_->reader != nullptr && !stores_->is_reading() &&
               stores_->reader->has_buffer();
    };
    if (!is_held())
        return;
    const time_point since = stores_->held_since;
    const time_point now = shard().now();
    if (const time_point limit = since + owner_.options().fpdu_limit; now < limit) {
        shard().timers().arm(stores_->held, limit);
        return;
    }
    // Timers come before sockets: after a pause of this process the peer may have taken all.
    on_writable();
    if (!is_held() || stores_->held_since != since)
        return;
    if (owner_.store_memory().are_wanted(patience_of_others, stores_->share))
        cut(end_cause::slow_reader,
            error(std::errc::timed_out,
                  "the peer does not take what it reads of a file, and others wait for the memory"));
    else
        shard().timers().arm(stores_->held, now + patience_of_others);
}

// What nothing is done with goes. False if something was, or is.
bool connection::shrink_stores() noexcept
{
    const bool is_busy = stores_->is_writing() || stores_->is_reading() || stores_->size != 0 ||
                         is_staging_ || !stores_->left.empty() || stores_->piece_size != 0 ||
                         stores_->to_write.is_linked() || stores_->to_read.is_linked() ||
                         vectors_done_ < vectors_.size();
    if (std::exchange(stores_->is_used, false))
        return false;
    // Else a peer would keep the buffer by an octet of a message that it never ends.
    if (places() && stores_->size != 0 && !is_staging_ && !stores_->is_writing()) {
        const steering::section here(owner_.lane());
        (void)write_staged();
        return false;
    }
    if (is_busy)
        return false;
    stores_->writer.reset();
    stores_->reader.reset();
    return true;
}

} // namespace verbena::iwarp
