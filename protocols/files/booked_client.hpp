// SPDX-License-Identifier: Apache-2.0
// What the book has of a client, and how it and tables reach each other.
#pragma once

#include "client_card.hpp"
#include "entries.hpp"

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/reactor/shard.hpp>
#include <verbena/protocols/files/client_book.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace verbena::files::detail {

struct booked_client {
    explicit booked_client(std::shared_ptr<client_card> c) noexcept : card(std::move(c)) {}
    bool has_lost_all() const noexcept
    {
        const client_state is = card->state;
        return is != client_state::active && is != client_state::courtesy;
    }
    const std::shared_ptr<client_card> card;
    bool storing = false;          // the store is writing of it
    bool is_dropping = false;      // its record is gone, and what it has goes; `storing` is set
    bool is_removed = false;       // its record, and not written since
    std::uint32_t host_number = 0; // of the start of a host that took its locks; 0: it has not said that
    time_point renewed{};
    time_point told_of_loss{}; // first, of the last of client_card::told_losses
    unsigned told_admin_losses = 0;
    time_point told_of_admin_loss{}; // likewise, of the last of these
    member_of<booked_client> by_lease{*this};
    member_of<booked_client> unrecorded{*this};
};

} // namespace verbena::files::detail

namespace verbena::files {

struct client_book::lists {
    intrusive_list<detail::member_of<detail::booked_client>> active; // the one renewed longest ago first
    intrusive_list<detail::member_of<detail::booked_client>>
        courtesy; // the one whose lease ended first first
    intrusive_list<detail::member_of<detail::booked_client>> unrecorded; // their records went for nothing
};

/// A table, and the message that has it look at what the cards say. The message may be under way when the table goes.
struct client_book::place final : remote_message {
    /// If it is on the clients' home, where it is called without a message.
    state_table* local() const noexcept { return is_here ? table.load(std::memory_order_relaxed) : nullptr; }
    /// Of one that is elsewhere.
    void tell() noexcept
    {
        if (table.load() != nullptr && !is_here && !is_told.exchange(true))
            where->reactor().post_remote(*this);
    }
    void deliver() noexcept override;
    const shard* where = nullptr;
    bool is_here = false;
    std::atomic<state_table*> table{nullptr};
    std::atomic<bool> is_told{false};
};

/// From tables elsewhere: client_card::is_unrecorded.
struct client_book::news final : remote_message {
    explicit news(client_book& b) noexcept : book(b) {}
    void tell() noexcept
    {
        if (!is_told.exchange(true))
            book.home_.reactor().post_remote(*this);
    }
    void deliver() noexcept override;
    client_book& book;
    std::atomic<bool> is_told{false};
};

} // namespace verbena::files
