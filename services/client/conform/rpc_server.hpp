// SPDX-License-Identifier: Apache-2.0
// What `verbena conform --listen` serves by RPC-over-RDMA: a program whose results the caller can foretell.
#pragma once

#include <verbena/core/task/channel.hpp>
#include <verbena/protocols/rpc/dispatcher.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>

#include <array>
#include <memory>

namespace verbena::conform {

/// Of RFC 5531 8.3's transient numbers.
inline constexpr std::uint32_t rpc_program = 0x40766331;
inline constexpr std::uint32_t rpc_callback_program = 0x40766332; ///< of the checking end
inline constexpr std::uint32_t rpc_version = 1;
inline constexpr std::uint32_t max_item = 1u << 20; ///< bytes of an argument or result

enum class rpc_procedure : std::uint32_t {
    null,
    digest,       ///< opaque<>; returns its length and its sum()
    produce,      ///< length, seed (hyper); returns an opaque<> that a Write chunk may carry, made by fill()
    produce_text, ///< the same, of an item that no Write chunk may carry
    call_back,    ///< a number; returns what the caller's `doubled` says of it
};
/// Of rpc_callback_program: a number; returns twice that.
inline constexpr std::uint32_t doubled = 1;

/// In private data: a peer that wants RPC-over-RDMA, whether a private message of RFC 8797 follows or not.
inline constexpr std::array<std::byte, 8> rpc_mark = {std::byte{'v'}, std::byte{'c'}, std::byte{'n'},
                                                      std::byte{'r'}, std::byte{'p'}, std::byte{'c'},
                                                      std::byte{'1'}, std::byte{0}};
/// True for that mark, and for what any requester says in its private data.
bool wants_rpc(std::span<const std::byte> private_data) noexcept;

/// One version, no procedure that must not run twice.
class conform_program : public rpc::program {
public:
    explicit conform_program(std::uint32_t number) noexcept : number_(number) {}
    std::uint32_t number() const noexcept override { return number_; }
    std::uint32_t low_version() const noexcept override { return rpc_version; }
    std::uint32_t high_version() const noexcept override { return rpc_version; }
    std::string_view name() const noexcept override { return "conform"; }
    std::string_view procedure_name(std::uint32_t, std::uint32_t) const noexcept override { return "CALL"; }
    bool non_idempotent(std::uint32_t, std::uint32_t) const noexcept override { return false; }

private:
    std::uint32_t number_;
};

/// Serves the connections that it is handed. Shard-local.
class rpc_server {
public:
    rpc_server(verbs::context& c, buffer_pool& buffers);
    /// Until close(). Once.
    task<void> run();
    void hand(std::unique_ptr<verbs::connect_request> r) { listener_.put(std::move(r)); }
    void close() noexcept { listener_.close(); }

private:
    // A listener whose peers are chosen by somebody else.
    class handed final : public verbs::listener {
    public:
        task<result<std::unique_ptr<verbs::connect_request>>> next() override;
        void close() noexcept override { waiting_.close(); }
        std::string local_url() const override { return "conform"; }
        /// Rejected when too many wait.
        void put(std::unique_ptr<verbs::connect_request> r) { (void)waiting_.try_send(r); }

    private:
        channel<std::unique_ptr<verbs::connect_request>> waiting_{64};
    };
    class program final : public conform_program {
    public:
        program() noexcept : conform_program(rpc_program) {}
        task<rpc::outcome> serve(rpc::call& c) override;
    };

    verbs::context& context_;
    buffer_pool& buffers_;
    program program_;
    rpc::service_dispatcher dispatcher_;
    rpcrdma::responder_options options_;
    rpcrdma::responder_stats stats_;
    handed listener_;
};

} // namespace verbena::conform
