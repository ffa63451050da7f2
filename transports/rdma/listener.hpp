// SPDX-License-Identifier: Apache-2.0
// The accepting side: who asks for a connection, and waits until it is taken.
#pragma once

#include "cm_id.hpp"
#include "context.hpp"
#include "request.hpp"

#include <verbena/core/net/net.hpp>
#include <verbena/core/task/event.hpp>

#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <utility>

namespace verbena::rdma {

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
