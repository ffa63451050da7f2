// SPDX-License-Identifier: Apache-2.0
// How two devices come to a connection: a handshake that the initiator's connect(), the responder's request
// and its queue pair share. Where the two ends are on different shards, each tells the other by messages.
#pragma once

#include "queue_pair.hpp"

#include <verbena/core/task/event.hpp>

#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace verbena::loop {

class handshake : public std::enable_shared_from_this<handshake> {
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
    /// The initiator's did.
    void device_gone(const error& why) noexcept;
    /// Brings it to the listener that has `name` when it arrives at `shard`, the one that the listener has now.
    void go_to(reactor& shard, std::string name) noexcept;

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
    event changed;                   ///< of the initiator's shard

private:
    // It stays while one of its messages is under way.
    class note final : public remote_message {
    public:
        explicit note(void (handshake::*arrived)() noexcept) noexcept : arrived_(arrived) {}
        void send(reactor& shard, std::shared_ptr<handshake> h) noexcept
        {
            if (under_way_ != nullptr)
                return;
            under_way_ = std::move(h);
            shard.post_remote(*this);
        }
        void deliver() noexcept override
        {
            const auto h = std::move(under_way_);
            (h.get()->*arrived_)();
        }

    private:
        void (handshake::*arrived_)() noexcept;
        std::shared_ptr<handshake> under_way_;
    };
    /// Has the initiator look again. Only while it waits for an answer.
    void tell() noexcept;
    void has_changed() noexcept { changed.set(); }
    void arrived() noexcept;

    note told_{&handshake::has_changed};
    note offered_{&handshake::arrived};
    std::string listener_; // that it is on its way to
};

/// A peer that was diverted from the listener that it came to.
class arrived_peer final : public verbs::arrival {
public:
    explicit arrived_peer(std::shared_ptr<handshake> h) : handshake_(std::move(h)) {}
    ~arrived_peer() override;
    std::span<const std::byte> private_data() const noexcept override { return handshake_->question; }
    /// Leaves nothing to refuse.
    std::shared_ptr<handshake> take() noexcept { return std::move(handshake_); }

private:
    std::shared_ptr<handshake> handshake_;
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

    /// `registered`: whoever connects to `name` comes here. Else it serves whom it is given.
    listener(context_impl& c, std::string name, bool registered);
    ~listener() override { close(); }

    task<result<std::unique_ptr<verbs::connect_request>>> next() override;
    void close() noexcept override;
    std::string local_url() const override { return registered_ ? "loop://" + name_ : name_; }
    /// On its shard. False: nobody serves here, too many wait, or there is no memory for one more.
    bool offer(const std::shared_ptr<handshake>& h) noexcept;
    bool take(const std::shared_ptr<handshake>& h) noexcept;
    context_impl& context() noexcept { return context_; }

private:
    context_impl& context_;
    std::string name_;
    const bool registered_;
    std::deque<std::unique_ptr<request>> waiting_;
    event changed_;
    bool closed_ = false;
};

} // namespace verbena::loop
