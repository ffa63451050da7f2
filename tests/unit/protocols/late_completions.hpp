// SPDX-License-Identifier: Apache-2.0
// A device whose connections keep back what they tell of sends, and of their end, for as long as a test wants. Receives come at once.
#pragma once

#include <verbena/core/verbs/verbs.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace verbena::rnbd_test {

class late_context final : public verbs::context {
public:
    /// `inner` outlives it.
    explicit late_context(verbs::context& inner) : inner_(inner) {}
    const verbs::capabilities& query() const noexcept override { return inner_.query(); }
    reactor& shard() noexcept override { return inner_.shard(); }
    verbs::device& device() noexcept override { return inner_.device(); }
    result<std::unique_ptr<verbs::listener>> listen(std::string_view address) override
    {
        return inner_.listen(address);
    }
    task<result<std::unique_ptr<verbs::queue_pair>>> connect(std::string_view address,
                                                             verbs::protection_domain& domain,
                                                             const verbs::connect_options& options,
                                                             std::vector<std::byte>& reply) override
    {
        auto made = co_await inner_.connect(address, domain, options, reply);
        if (!made)
            co_return made.error();
        std::unique_ptr<verbs::queue_pair> late = std::make_unique<pair>(*this, std::move(*made));
        co_return late;
    }
    void hold() { holds_ = true; }
    void release()
    {
        holds_ = false;
        const std::vector<pair*> all = pairs_;
        for (pair* p : all) {
            if (std::ranges::find(pairs_, p) != pairs_.end())
                p->release();
        }
    }

private:
    class pair final : public verbs::queue_pair, public verbs::completion_handler {
    public:
        pair(late_context& owner, std::unique_ptr<verbs::queue_pair> inner)
            : owner_(owner), inner_(std::move(inner))
        {
            owner_.pairs_.push_back(this);
        }
        ~pair() override { std::erase(owner_.pairs_, this); }
        void set_handler(verbs::completion_handler* handler) noexcept override
        {
            handler_ = handler;
            inner_->set_handler(this);
        }
        result<void> post_send(std::span<const verbs::send_request> batch) override
        {
            return inner_->post_send(batch);
        }
        result<void> post_receive(std::span<const verbs::receive_request> batch) override
        {
            return inner_->post_receive(batch);
        }
        void disconnect() noexcept override { inner_->disconnect(); }
        void kill(const error& cause) noexcept override { inner_->kill(cause); }
        void abort(const error& cause) noexcept override { inner_->abort(cause); }
        bool connected() const noexcept override { return inner_->connected(); }
        verbs::protection_domain& domain() noexcept override { return inner_->domain(); }
        std::uint32_t max_reads() const noexcept override { return inner_->max_reads(); }
        std::string_view peer_name() const noexcept override { return inner_->peer_name(); }
        std::string_view peer_address() const noexcept override { return inner_->peer_address(); }
        void on_completions(std::span<const verbs::completion> batch) noexcept override
        {
            std::vector<verbs::completion> now;
            for (const verbs::completion& c : batch)
                (owner_.holds_ && !verbs::is_receive(c.opcode) ? kept_ : now).push_back(c);
            handler_->on_completions(now);
        }
        void on_disconnected(const error& cause) noexcept override
        {
            if (owner_.holds_)
                end_ = cause;
            else
                handler_->on_disconnected(cause);
        }
        void release()
        {
            handler_->on_completions(std::exchange(kept_, {}));
            if (const auto cause = std::exchange(end_, {}))
                handler_->on_disconnected(*cause);
        }

    private:
        late_context& owner_;
        std::unique_ptr<verbs::queue_pair> inner_;
        verbs::completion_handler* handler_ = nullptr;
        std::vector<verbs::completion> kept_;
        std::optional<error> end_;
    };

    verbs::context& inner_;
    std::vector<pair*> pairs_;
    bool holds_ = false;
};

} // namespace verbena::rnbd_test
