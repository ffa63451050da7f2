// SPDX-License-Identifier: Apache-2.0
#include "connection.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace verbena::rtrs {

connection::~connection()
{
    queue_pair_.reset();
    deferred::unlink();
}

void connection::reserve(std::size_t receives)
{
    arrived_.reserve(receives);
    handling_.reserve(receives);
}

void connection::take(std::unique_ptr<verbs::queue_pair> made)
{
    queue_pair_ = std::move(made);
    queue_pair_->set_handler(this);
}

task<void> connection::ended()
{
    if (queue_pair_)
        co_await ended_.wait_shielded();
}

void connection::on_disconnected(const error& cause) noexcept
{
    down_ = true;
    ended_.set();
    on_end(cause);
}

// Slots count from 1, as 0 is what the receive of another has.
verbs::receive_request connection::receive(std::uint32_t slot) const noexcept
{
    verbs::receive_request r;
    r.id = std::uint64_t(slot) + 1;
    if (bytes_of_slot_ != 0)
        r.segment = {const_cast<std::byte*>(memory_.data()) + std::size_t(slot) * bytes_of_slot_,
                     bytes_of_slot_, 0};
    return r;
}

bool connection::post_receives(std::uint32_t count, lease memory, std::uint32_t bytes_of_slot) noexcept
{
    memory_ = std::move(memory);
    bytes_of_slot_ = bytes_of_slot;
    std::array<verbs::receive_request, 64> some;
    for (std::uint32_t slot = 0; slot != count;) {
        std::size_t n = 0;
        while (n != some.size() && slot != count)
            some[n++] = receive(slot++);
        if (!queue_pair_->post_receive(std::span(some).first(n)))
            return false;
    }
    return true;
}

bool connection::repost(std::span<const arrival> arrivals) noexcept
{
    std::array<verbs::receive_request, 64> some;
    std::size_t n = 0;
    for (const arrival& a : arrivals) {
        if (a.slot != no_slot)
            some[n++] = receive(a.slot);
        if (n == some.size() && !queue_pair_->post_receive(std::span(some).first(std::exchange(n, 0))))
            return false;
    }
    return n == 0 || queue_pair_->post_receive(std::span(some).first(n)).has_value();
}

std::span<const std::byte> connection::in_slot(const arrival& a) const noexcept
{
    if (a.slot == no_slot || bytes_of_slot_ == 0)
        return {};
    return std::span(memory_.data() + std::size_t(a.slot) * bytes_of_slot_,
                     std::min(a.length, bytes_of_slot_));
}

bool connection::note(const verbs::completion& c)
{
    if (!is_receive(c.opcode))
        return false;
    if (c.status == verbs::status::success)
        arrived_.push_back(
            {c.opcode, c.length, c.immediate, c.id == 0 ? no_slot : static_cast<std::uint32_t>(c.id - 1)});
    return true;
}

} // namespace verbena::rtrs
