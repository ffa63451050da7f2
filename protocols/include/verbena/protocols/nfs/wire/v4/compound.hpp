// SPDX-License-Identifier: Apache-2.0
// COMPOUND (8881 16.2, 7530 15.2): several operations in one call, read and written one after the other, so that nothing of it lies
// on the heap. A server has compound_arguments and compound_results, a caller compound_request and compound_reply.
// docs/internals/nfs4.md tells how they go together. The classes are templates for callback.hpp, whose CB_COMPOUND is the same with
// other operations.
#pragma once

#include <verbena/protocols/nfs/wire/v4/operations.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// What stands before a call's operations.
struct compound_head {
    text_view<max_tag> tag;
    std::uint32_t minorversion = 0;
    std::uint32_t operations = 0; ///< as many as the caller says: nobody has counted them yet
};

/// The operations of COMPOUND.
struct compound_operations {
    /// See basic_arguments, basic_results and basic_reply, which take these.
    using opcode = nfs_opnum4;
    /// Of the arguments of all operations.
    using arguments = all_arguments;
    /// Of their results.
    using results = all_results;
    /// What stands before the operations of a call.
    using head = compound_head;
};

/// What stands before a reply's results.
struct compound_reply_head {
    nfsstat4 status = nfsstat4::ok;
    text_view<max_tag> tag;
    std::uint32_t operations = 0;
};

/// Reads a COMPOUND's arguments.
///
///     compound_arguments args(c.args());
///     if (!args.ok()) // no COMPOUND: GARBAGE_ARGS
///     while (args.next())
///         args.visit([&](const auto& of_one) { ... }) || // BADXDR for args.opcode(), unless that is illegal
///
/// Arguments are views into the message. `in` outlives this. Not thread-safe.
template<class Operations>
class basic_arguments {
public:
    /// The number of an operation.
    using opnum = typename Operations::opcode;
    /// What stands before the operations.
    using head_type = typename Operations::head;

    /// Reads the head; next() reads what follows.
    explicit basic_arguments(xdr::decoder& in) noexcept;

    /// The head could be read.
    bool ok() const noexcept { return ok_; }
    const head_type& head() const noexcept { return head_; }

    /// Goes to the next operation; the arguments of the one before have been read. False behind the last one and behind one that
    /// could not be read. Where the message ends before a number that it announced, opcode() is illegal and visit() fails.
    bool next() noexcept;
    /// To the same one once more, whose bytes could not be read: they are in reach now, and the decoder stands in front of it.
    void again() noexcept { --index_; }
    /// May be any number: is_operation() knows which ones the minor version has.
    opnum opcode() const noexcept { return opcode_; }
    /// How many operations were gone to.
    std::uint32_t index() const noexcept { return index_; }

    /// Reads the arguments of opcode() and calls f(const X4args&). False, and f is not called, if they are none of it or if there is
    /// no such operation.
    template<class F>
    bool visit(F&& f)
    {
        bool good = false;
        Operations::arguments::with(opcode_, [&]<class Args>(Args args) {
            good = read(args);
            if (good)
                f(std::as_const(args));
        });
        return good;
    }
    /// The same for who knows what is to come: Args::opcode is opcode().
    template<class Args>
    bool read(Args& args)
    {
        xdr::codec<Args>::decode(*in_, args);
        return in_->ok();
    }

    /// The operation that comes next, illegal where there is none. Those of `passed`, which has no arguments, are passed by: whether one
    /// that sets the current handle may answer with WRONGSEC is decided by what follows behind SAVEFH (8881 2.6.3.1.1).
    opnum following(opnum passed) const noexcept;

private:
    xdr::decoder* in_;
    head_type head_;
    std::uint32_t index_ = 0;
    opnum opcode_ = opnum::illegal;
    bool ok_ = false;
};

/// Writes a COMPOUND's results.
///
/// There is always room for the status of one more operation that fails, so that whoever finds no room for a result can say so.
/// `out` outlives this. Not thread-safe.
template<class Operations>
class basic_results {
public:
    /// The number of an operation.
    using opnum = typename Operations::opcode;

    /// `limit` is what may be written from here on, payloads and their pads included: a session's ca_maxresponsesize less the RPC
    /// header. `tag` is the call's.
    basic_results(xdr::encoder& out, std::string_view tag, std::size_t limit = SIZE_MAX) noexcept;

    /// Nobody can be answered: there is no room for the head and one status.
    bool ok() const noexcept { return ok_; }
    /// Of the last operation, which is that of the COMPOUND.
    nfsstat4 status() const noexcept { return status_; }
    std::uint32_t operations() const noexcept { return operations_; }

    /// Bytes for the results, opcode and all, of an operation.
    std::size_t room() const noexcept;
    /// Whether the largest result of the kind fits, with `data` bytes of a large_opaque: to be asked before an operation that
    /// can't be taken back.
    template<class Results>
    bool has_room_for(std::size_t data = 0) const noexcept
    {
        return room() >= 4 + xdr::max_size<Results> + xdr::padded(data);
    }

    /// One operation's results. False, and nothing is written, if they don't fit.
    template<class Results>
    [[nodiscard]] bool add(const Results& results) noexcept
    {
        begin_with_status(Results::opcode);
        xdr::codec<Results>::encode(*out_, results);
        return end(results.status);
    }

    /// An operation that failed and has nothing else to say. One that its minor version does not know becomes ILLEGAL with
    /// OP_ILLEGAL: pass `nfs_opnum4::illegal` for it.
    void fail(opnum operation, nfsstat4 status) noexcept;

    /// For results that have no struct: writes opcode and OK. What follows is the caller's to write, and end() or undo() behind it.
    xdr::encoder& begin(opnum operation) noexcept;
    /// As add().
    [[nodiscard]] bool end() noexcept { return end(nfsstat4::ok); }
    /// Forgets what was written since begin().
    void undo() noexcept;

    /// The head with the last status in the place of the COMPOUND's, for calls that are refused as a whole: MINOR_VERS_MISMATCH has no
    /// results at all (8881 16.2.3).
    void refuse(nfsstat4 status) noexcept;

private:
    void begin_with_status(opnum operation) noexcept;
    bool end(nfsstat4 status) noexcept;
    bool commit(nfsstat4 status, std::size_t kept) noexcept;

    xdr::encoder* out_;
    std::size_t first_ = 0;   // position of the head
    std::size_t head_ = 0;    // offset of the status
    std::size_t count_ = 0;   // offset of the number of results
    std::size_t current_ = 0; // offset of the operation being written
    std::size_t limit_;
    std::uint32_t operations_ = 0;
    nfsstat4 status_ = nfsstat4::ok;
    bool ok_ = false;
};

/// Writes a COMPOUND's arguments. `out` outlives this.
template<class Operations>
class basic_request {
public:
    /// The number of operations in `head` does not count.
    basic_request(xdr::encoder& out, typename Operations::head head) noexcept;

    /// out.ok() is false if they don't fit.
    template<class Args>
    basic_request& add(const Args& args) noexcept
    {
        begin(Args::opcode);
        xdr::codec<Args>::encode(*out_, args);
        return *this;
    }
    std::uint32_t operations() const noexcept { return operations_; }

private:
    void begin(typename Operations::opcode operation) noexcept;

    xdr::encoder* out_;
    std::size_t count_ = 0;
    std::uint32_t operations_ = 0;
};

/// Reads a COMPOUND's results. They are views into the message. `in` outlives this.
///
///     compound_reply reply(in);
///     SEQUENCE4res sequence; PUTFH4res putfh; GETATTR4res getattr;
///     if (reply.read(sequence) && reply.read(putfh) && reply.read(getattr)) ... // all are ok
///     if (!in.ok()) ...                                                         // the reply is broken
///     reply.status()                                                            // of the one that failed
template<class Operations>
class basic_reply {
public:
    /// The number of an operation.
    using opnum = typename Operations::opcode;

    /// Reads the head; the results follow one by one.
    explicit basic_reply(xdr::decoder& in) noexcept;

    /// The status of the COMPOUND: of the operation that failed, else ok.
    nfsstat4 status() const noexcept { return head_.status; }
    const compound_reply_head& head() const noexcept { return head_; }

    /// The results of the next operation. True if its status is ok. False if it failed, if there is none any more, as one before it
    /// failed, or if the message is broken, be it by another operation's results: `results` says the status in the first case, and
    /// the decoder is not ok() in the last one. ILLEGAL stands for any operation.
    template<class Results>
    bool read(Results& results) noexcept
    {
        if (!next(Results::opcode, results.status))
            return false;
        xdr::codec<Results>::decode(*in_, results);
        return judge(results.status);
    }
    /// All results that the head announced have been read.
    bool complete() const noexcept { return in_->ok() && left_ == 0; }

private:
    bool next(opnum wanted, nfsstat4& status) noexcept;
    bool judge(nfsstat4 status) noexcept;

    xdr::decoder* in_;
    compound_reply_head head_;
    std::uint32_t left_ = 0;
};

/// What a server reads of COMPOUND.
using compound_arguments = basic_arguments<compound_operations>;
/// What a server answers.
using compound_results = basic_results<compound_operations>;
/// What a client sends.
using compound_request = basic_request<compound_operations>;
/// What a client reads of the answer.
using compound_reply = basic_reply<compound_operations>;

extern template class basic_arguments<compound_operations>;
extern template class basic_results<compound_operations>;
extern template class basic_request<compound_operations>;
extern template class basic_reply<compound_operations>;

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
