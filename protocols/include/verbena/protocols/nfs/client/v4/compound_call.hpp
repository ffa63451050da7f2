// SPDX-License-Identifier: Apache-2.0
// One COMPOUND of a caller: arguments that go out behind SEQUENCE, results that come back, and the message that those point into.
#pragma once

#include <verbena/protocols/nfs/wire/v4/compound.hpp>
#include <verbena/protocols/rpc/client.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// What client_session::run() sends and fills. Whoever calls keeps it, and what its arguments are views of, until run() ends.
class compound_call {
public:
    /// Room for results that nobody has said otherwise of: a handle, attributes of a file with the names of its owners, what OPEN
    /// yields.
    static constexpr std::size_t usual_results = 2048;

    virtual ~compound_call() = default;
    compound_call(const compound_call&) = delete;
    compound_call& operator=(const compound_call&) = delete;

    /// It must not run twice: the server keeps its results, until the slot's next call, for a repeat.
    compound_call& once() noexcept
    {
        once_ = true;
        return *this;
    }
    /// Its results take so many bytes at most, a large item aside.
    compound_call& yields(std::size_t bytes) noexcept
    {
        results_ = bytes;
        return *this;
    }
    /// One result is a large item of so many bytes at most, for which a Write chunk is offered over RDMA.
    compound_call& yields_item(std::uint32_t bytes) noexcept
    {
        item_ = bytes;
        return *this;
    }
    /// One argument is a large item that says `external`. `bytes` outlive the call; their leases are shared.
    compound_call& carries(const rpc::payload& bytes) noexcept
    {
        data_ = &bytes;
        return *this;
    }
    /// Who wanted it has gone: client_session::run() waits for the answer that is outstanding, if there is one, and sends the call no more.
    void abandon() noexcept { abandoned_ = true; }
    /// Whether abandon() was called.
    bool is_abandoned() const noexcept { return abandoned_; }
    /// It is worth nothing behind a restart: client_session::run() sends it to that incarnation of the server alone, and fails with ECANCELED in the
    /// next one.
    compound_call& only_in(std::uint64_t incarnation) noexcept
    {
        only_in_ = incarnation;
        return *this;
    }
    /// The transport had it, and the server may have run it: no answer came, or one of its slot alone, or, after such a one, that it fails. What that
    /// says of the time before is for who knows the operations. An answer like BADSESSION does not tell either, as the transport sends again by itself:
    /// it may be to the second copy.
    /// A server of another incarnation (client_session::incarnation()) than it was sent to last has nothing of it: there it is in no doubt.
    bool is_in_doubt(std::uint64_t incarnation) const noexcept
    {
        return in_doubt_ && sent_in_ == incarnation;
    }
    /// client_session::run() fails at once where the server answers DELAY or GRACE: the caller asks again, if at all, with nothing held meanwhile that
    /// the server may wait for.
    compound_call& not_later() noexcept
    {
        not_later_ = true;
        return *this;
    }
    /// The message is written into `reserve`, client_session::message_size bytes of the transport's, unless that is empty or in use; it outlives the
    /// call. For calls that memory waits for: they must not wait for memory.
    compound_call& written_into(const lease& reserve) noexcept
    {
        reserve_ = &reserve;
        return *this;
    }
    /// The message that the results point into; results() stands behind the last one.
    rpc::reply& reply() noexcept { return reply_; }

protected:
    compound_call() = default;

private:
    friend class client_session;
    virtual void encode(compound_request& out) const noexcept = 0;
    /// Reads results in their order. Which operation has failed or could not be read; nullptr if all is well.
    virtual const char* decode(compound_reply& in) noexcept = 0;

    bool once_ = false;
    bool abandoned_ = false;
    bool not_later_ = false;
    bool in_doubt_ = false;
    std::uint64_t sent_in_ = 0; // incarnation of the server, if in_doubt_
    std::optional<std::uint64_t> only_in_;
    std::size_t results_ = usual_results;
    std::uint32_t item_ = 0;
    const rpc::payload* data_ = nullptr;
    const lease* reserve_ = nullptr;
    rpc::reply reply_;
};

/// Any number of LOOKUPs, one after the other.
struct lookup_path {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::lookup;
    std::span<const std::string_view> names;
};

namespace detail {

template<auto Opcode, class List>
struct result_type;
template<auto Opcode, class T, class... Rest>
struct result_type<Opcode, operation_list<T, Rest...>>
    : std::conditional_t<T::opcode == Opcode, std::type_identity<T>,
                         result_type<Opcode, operation_list<Rest...>>> {};

} // namespace detail

/// The results of the operation with these arguments.
template<class Args>
using results_of = typename detail::result_type<Args::opcode, all_results>::type;

/// The operations of these arguments.
///
///     operations call(PUTFH4args{handle}, GETFH4args());
///     auto ran = co_await session.run(call);
///     call.get<1>().object // after success, as long as `call` is there
template<class... Args>
class operations final : public compound_call {
public:
    /// A copy of the arguments: what they point at outlives the call.
    explicit operations(const Args&... args) noexcept : args_(args...) {}

    /// The results of operation `I`, counted from 0 behind SEQUENCE. Of LOOKUPs the last one's.
    template<std::size_t I>
    const auto& get() const noexcept
    {
        return std::get<I>(results_);
    }
    /// The arguments of operation `I`, counted as in get().
    template<std::size_t I>
    const auto& arguments() const noexcept
    {
        return std::get<I>(args_);
    }

private:
    static void add(compound_request& out, const lookup_path& path) noexcept
    {
        for (const std::string_view name : path.names)
            out.add(LOOKUP4args{name});
    }
    template<class T>
    static void add(compound_request& out, const T& args) noexcept
    {
        out.add(args);
    }
    static bool take(compound_reply& in, const lookup_path& path, LOOKUP4res& results) noexcept
    {
        for (std::size_t i = 0; i < path.names.size(); ++i) {
            if (!in.read(results))
                return false;
        }
        return true;
    }
    template<class T>
    static bool take(compound_reply& in, const T&, results_of<T>& results) noexcept
    {
        return in.read(results);
    }
    void encode(compound_request& out) const noexcept override
    {
        std::apply([&](const Args&... each) { (add(out, each), ...); }, args_);
    }
    const char* decode(compound_reply& in) noexcept override
    {
        return decode(in, std::index_sequence_for<Args...>());
    }
    template<std::size_t... I>
    const char* decode([[maybe_unused]] compound_reply& in, std::index_sequence<I...>) noexcept
    {
        results_ = {};
        const char* failed = nullptr;
        (void)(... && (take(in, std::get<I>(args_), std::get<I>(results_)) ||
                       (failed = to_string(Args::opcode), false)));
        return failed;
    }

    std::tuple<Args...> args_;
    std::tuple<results_of<Args>...> results_;
};

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
