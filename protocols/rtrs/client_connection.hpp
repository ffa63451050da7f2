// SPDX-License-Identifier: Apache-2.0
// One queue pair of a path, at the client.
#pragma once

#include "connection.hpp"

#include <verbena/protocols/rtrs/wire.hpp>

#include <cstdint>
#include <optional>
#include <span>

namespace verbena::rtrs {

class client_path;

class client_connection final : public connection {
public:
    using connection::is_up;
    client_connection(client_path& p, std::uint16_t number) noexcept : connection(number), path_(p) {}

    task<result<void>> connect(const connect_request& m);
    /// Receives for the answers to so many requests, from now on. Once. Completes when: there is memory for them, if they need any. On cancel:
    /// ECANCELED as ENOMEM. Errors: ENOMEM, ENOBUFS. Lifetime: the connection outlives it. Shard: the connection's.
    task<result<void>> stand(std::uint32_t requests);
    result<void> post(std::span<const verbs::send_request> batch) noexcept;
    void end(bool orderly) noexcept;
    verbs::queue_pair& queue_pair() noexcept { return *queue_pair_; }

    void on_completions(std::span<const verbs::completion> batch) noexcept override;
    void run() noexcept override;

private:
    void on_end(const error& cause) noexcept override;
    void handle(const arrival& a) noexcept;

    client_path& path_;
    std::optional<new_key> key_; // whose immediate follows
};

} // namespace verbena::rtrs
