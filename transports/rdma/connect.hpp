// SPDX-License-Identifier: Apache-2.0
// Connection set-up, both roles.
#pragma once

#include "connection_manager.hpp"
#include "context.hpp"
#include "queue_pair.hpp"

#include <verbena/core/net/net.hpp>
#include <verbena/core/task/event.hpp>

#include <deque>
#include <exception>
#include <new>
#include <string>

namespace verbena::rdma {

/// What the connection manager says of one rdma_cm_id while it is set up.
class cm_events final : public cm_handler, private timer {
public:
    explicit cm_events(reactor& r) noexcept : shard_(r) {}
    void on_cm_event(cm_event& e) noexcept override
    {
        try {
            waiting_.push_back(std::move(e));
        } catch (const std::bad_alloc&) { // whoever waits for it hears of that when time is up
        }
        changed_.set();
    }
    /// The next one; an error when time is up or the task is stopped.
    task<result<cm_event>> next(const char* what, time_point deadline);
    /// What came and was not asked for goes to `to`, as what comes from now on.
    void hand_over(rdma_cm_id* id, cm_handler& to) noexcept;
    bool empty() const noexcept { return waiting_.empty(); }

private:
    void on_timer() noexcept override
    {
        expired_ = true;
        changed_.set();
    }
    reactor& shard_;
    std::deque<cm_event> waiting_;
    event changed_;
    bool expired_ = false;
};

/// Owns an rdma_cm_id without a queue pair.
class cm_id {
public:
    explicit cm_id(rdma_cm_id* id = nullptr) noexcept : id_(id) {}
    cm_id(cm_id&& other) noexcept : id_(other.release()) {}
    cm_id(const cm_id&) = delete;
    ~cm_id()
    {
        if (id_ != nullptr)
            (void)::rdma_destroy_id(id_);
    }
    cm_id& operator=(cm_id&& other) noexcept
    {
        std::swap(id_, other.id_);
        return *this;
    }
    rdma_cm_id* get() const noexcept { return id_; }
    rdma_cm_id* release() noexcept { return std::exchange(id_, nullptr); }

private:
    rdma_cm_id* id_;
};

class arrived_peer final : public verbs::arrival {
public:
    explicit arrived_peer(cm_event e) noexcept : id(e.id), request(std::move(e))
    {
        id.get()->context = nullptr;
    }
    /// Rejects it, if nobody took its id.
    ~arrived_peer() override;
    std::span<const std::byte> private_data() const noexcept override { return request.private_data; }
    cm_id id;
    cm_event request;
};

class request final : public verbs::connect_request {
public:
    request(context_impl& c, std::unique_ptr<arrived_peer> peer);
    ~request() override;

    std::span<const std::byte> private_data() const noexcept override { return peer_->request.private_data; }
    std::string_view peer_address() const noexcept override { return peer_address_; }
    std::string_view peer_name() const noexcept override { return peer_name_; }
    const ibv_context* came_by() const noexcept
    {
        return peer_->id.get() != nullptr ? peer_->id.get()->verbs : nullptr;
    }
    std::uint32_t peer_responder_resources() const noexcept override
    {
        return peer_->request.initiator_depth;
    }
    task<result<std::unique_ptr<verbs::queue_pair>>>
    make_queue_pair(verbs::protection_domain& domain, const verbs::queue_pair_options& o) override;
    task<result<void>> accept(const verbs::connect_options& o) override;
    task<result<void>> reject(std::span<const std::byte> private_data) override;

private:
    context_impl& context_;
    std::unique_ptr<arrived_peer> peer_;
    cm_events events_;
    std::string peer_name_;
    std::string peer_address_;
    queue_pair* made_ = nullptr; // the caller's
};

class listener final : public verbs::listener, public cm_handler, private timer {
public:
    static constexpr auto retry = std::chrono::seconds(1);

    listener(context_impl& c, std::string url) : context_(c), url_(std::move(url)) { context_.add(*this); }
    ~listener() override
    {
        close();
        context_.remove(*this);
    }
    result<void> open(std::string_view address);

    task<result<std::unique_ptr<verbs::connect_request>>> next() override;
    void close() noexcept override;
    std::string local_url() const override { return url_; }
    void take(std::unique_ptr<arrived_peer> peer) noexcept;
    /// An exception kept a peer from being taken.
    void lose(const std::exception_ptr& e) noexcept;
    /// The device whose address it has, if it is of one.
    ibv_context* bound_to() const noexcept { return id_.get() != nullptr ? id_.get()->verbs : nullptr; }
    /// The device went: peers that came by it are let go, and a listener with its address waits for its return.
    void lose(const ibv_context* device) noexcept;

    void on_cm_event(cm_event& e) noexcept override;

private:
    void on_timer() noexcept override;
    result<void> bind() noexcept;
    void on_peer(std::unique_ptr<arrived_peer> peer);
    void refuse_device(rdma_cm_id& peer) noexcept;

    context_impl& context_;
    std::string url_;
    net::endpoint where_;
    cm_id id_;
    std::deque<std::unique_ptr<request>> waiting_;
    event changed_;
    bool closed_ = false;
};

} // namespace verbena::rdma
