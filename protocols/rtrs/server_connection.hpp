// SPDX-License-Identifier: Apache-2.0
// One queue pair of a client's path, at the server.
#pragma once

#include "connection.hpp"
#include "connection_charges.hpp"

#include <verbena/protocols/rtrs/server.hpp>
#include <verbena/protocols/rtrs/wire.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace verbena::rtrs {

class path_part;

/// One queue pair. On the shard of its part of the path.
class server_connection final : public connection {
public:
    server_connection(path_part& path, std::uint16_t number, connection_charges charged);
    ~server_connection();
    /// Makes the queue pair and answers. False: it failed, and the path ends.
    task<bool> accept(std::unique_ptr<verbs::connect_request> request, std::uint32_t receives);
    /// Nothing may be posted to it any more.
    void end(bool orderly) noexcept;

    void on_completions(std::span<const verbs::completion> batch) noexcept override;
    void run() noexcept override;
    /// Whether it was accepted.
    bool accepted() const noexcept { return accepted_; }

    /// `told`: of the last one's completion, by whatever id it has; else of one now and then.
    bool post(std::span<verbs::send_request> batch, bool told = false) noexcept;
    /// Whose turn has come: the chunk is this path's.
    void start(std::uint32_t chunk, const io_header& header, std::uint32_t data_size);
    /// What its path has on its shard.
    path_part& path() const noexcept { return path_; }
    std::uint16_t number() const noexcept { return number_; }

private:
    void on_end(const error& cause) noexcept override;
    task<bool> answer(std::unique_ptr<verbs::connect_request> request, std::uint32_t receives);
    void handle(const arrival& a);
    void answer_heartbeat() noexcept;
    void take_request(std::uint32_t immediate);
    void look_at_request(std::uint32_t immediate);
    task<void> serve(std::uint32_t chunk, io_header header, std::uint32_t data_size);
    void answer(std::uint32_t chunk, const io_header& header, std::uint32_t produced,
                std::uint16_t code) noexcept;

    path_part& path_;
    const connection_charges charged_;
    std::uint32_t send_depth_ = 0;
    std::uint32_t unsignalled_ = 0;
    const request::origin origin_;
    std::uint32_t requests_ = 0; // that came
    std::size_t handled_ = 0;    // of handling_
    bool accepted_ = false;
    enum class heartbeat_answer : std::uint8_t {
        none,
        on_its_way, // the device has not sent it yet
        one_more,   // likewise, and another heartbeat has come
    };
    heartbeat_answer answer_ = heartbeat_answer::none;
};

} // namespace verbena::rtrs
