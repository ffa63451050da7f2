// SPDX-License-Identifier: Apache-2.0
// How two devices come to a connection: a handshake that the initiator's connect(), the responder's request
// and its queue pair share.
#pragma once

#include "queue_pair.hpp"

#include <verbena/core/event.hpp>

#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace verbena::loop {

class handshake {
public:
    enum class phase : std::uint8_t { asking, accepted, refused, abandoned };

    handshake(context_impl& from, std::string name, const verbs::connect_options& o);
    ~handshake();
    handshake(const handshake&) = delete;

    void accept(queue_pair& responder, std::uint32_t ord, std::uint32_t ird,
                std::vector<std::byte> data) noexcept;
    void refuse(const error& why, std::vector<std::byte> data = {}) noexcept;
    /// The initiator goes on without it.
    void abandon() noexcept;
    void device_gone(const error& why) noexcept;

    context_impl& initiator;
    const std::string initiator_name;
    const std::string initiator_address;
    const std::vector<std::byte> question;
    const std::uint32_t initiator_depth;     ///< ORD that the initiator wants
    const std::uint32_t responder_resources; ///< IRD that it has
    loop::handshake::phase phase = phase::asking;
    std::vector<std::byte> answer;
    error failure;
    std::uint32_t ord = 0;           ///< the initiator's, as agreed
    queue_pair* responder = nullptr; ///< while it lives
    event changed;
};

/// The responder's view of a handshake.
class request final : public verbs::connect_request {
public:
    request(context_impl& c, std::shared_ptr<handshake> h) : context_(c), handshake_(std::move(h)) {}
    ~request() override;

    std::span<const std::byte> private_data() const noexcept override { return handshake_->question; }
    std::string_view peer_address() const noexcept override { return handshake_->initiator_address; }
    std::string_view peer_name() const noexcept override { return handshake_->initiator_name; }
    std::uint32_t peer_responder_resources() const noexcept override
    {
        return handshake_->responder_resources;
    }
    task<result<std::unique_ptr<verbs::queue_pair>>>
    make_queue_pair(verbs::protection_domain& domain, const verbs::queue_pair_options& o) override;
    task<result<void>> accept(const verbs::connect_options& o) override;
    task<result<void>> reject(std::span<const std::byte> private_data) override;

    bool abandoned() const noexcept { return handshake_->phase == handshake::phase::abandoned; }

private:
    context_impl& context_;
    std::shared_ptr<handshake> handshake_;
    bool made_ = false;
    queue_pair* made_pair_ = nullptr; // while it lives
};

class listener final : public verbs::listener {
public:
    static constexpr std::size_t max_waiting = 1024;

    listener(context_impl& c, std::string name);
    ~listener() override { close(); }

    task<result<std::unique_ptr<verbs::connect_request>>> next() override;
    void close() noexcept override;
    std::string local_url() const override { return "loop://" + name_; }
    /// False: nobody serves here, or too many wait.
    bool offer(std::shared_ptr<handshake> h);

private:
    context_impl& context_;
    std::string name_;
    std::deque<std::unique_ptr<request>> waiting_;
    event changed_;
    bool closed_ = false;
};

} // namespace verbena::loop
