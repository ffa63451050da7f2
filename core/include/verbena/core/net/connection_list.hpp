// SPDX-License-Identifier: Apache-2.0
// connection_list: the connections that one shard serves, for whoever shows them to people.
//
// A connection stands in the list from when it is served until it goes. A reader goes through the list in several steps, between
// which connections come and go: it sees each that is there all the time, once.
#pragma once

#include <verbena/core/intrusive_list.hpp>
#include <verbena/core/reactor/clock.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena {

class connection_list;

/// A number that no other connection of the process got before, whatever its transport: from 1 on. Any thread.
std::uint32_t new_connection_number() noexcept;

/// What people are told of a connection.
struct connection_report {
    std::uint32_t number = 0;   ///< new_connection_number(): its calls are named by it (trace_name)
    std::string peer;           ///< "192.0.2.7:1021"
    std::string_view transport; ///< "tcp", "iwarp"; a literal
    time_point since;           ///< when it was taken
    time_point last_call;       ///< or taken
    std::size_t calls = 0;      ///< that are being served
    const char* state = "";     ///< a literal
};

/// Whose a connection is. Texts live as long as it.
struct connection_party {
    std::string_view address; ///< canonical, without port
    std::uint64_t client = 0; ///< rpc::peer::client
    std::size_t calls = 0;    ///< that are being served
    bool has_ended = false;   ///< or ends: it is there for its calls alone
};

/// A connection's entry. Made, used and destroyed on the list's shard; leaves the list when it is destroyed.
class listed_connection : private list_hook {
public:
    listed_connection() = default;
    listed_connection(const listed_connection&) = delete;

    /// What people are told of it, now. On the list's shard.
    virtual connection_report report() const = 0;
    /// Whose it is. Cheaper than report(): for whoever looks for the connections of one peer or client.
    virtual connection_party party() const noexcept = 0;
    /// Ends it now. No call of its begins any more, and those that run hear that their caller is gone. It stays in the list until all of
    /// them have ended.
    virtual void end_now() noexcept = 0;
    /// Of a list that outlives this; nullptr: of none.
    inline void join(connection_list* list) noexcept;
    /// Idempotent.
    inline void leave() noexcept;

protected:
    ~listed_connection() { leave(); }

private:
    friend class connection_list;
    template<class T>
    friend class intrusive_list;
    connection_list* list_ = nullptr;
};

/// The connections of one shard, in the order in which they came. Used on the shard; owns none of them.
class connection_list {
public:
    connection_list() = default;
    connection_list(const connection_list&) = delete;

    /// Goes through the list once. Of the list's shard; may outlive the list, and is at its end then.
    class reader : private list_hook {
    public:
        /// Begins at the oldest entry.
        explicit reader(connection_list& list) noexcept : list_(&list), at_(list.all_.front())
        {
            list.readers_.push_back(*this);
        }
        reader(const reader&) = delete;
        /// nullptr at the end. The entry may be used until its connection goes.
        listed_connection* next() noexcept
        {
            listed_connection* const found = at_;
            if (found != nullptr)
                at_ = list_->all_.next(*found);
            return found;
        }

    private:
        friend class connection_list;
        friend class listed_connection;
        template<class T>
        friend class intrusive_list;
        connection_list* list_;
        listed_connection* at_;
    };

    ~connection_list()
    {
        while (reader* r = readers_.pop_front())
            r->at_ = nullptr;
        while (listed_connection* c = all_.pop_front())
            c->list_ = nullptr;
    }

private:
    friend class listed_connection;
    intrusive_list<listed_connection> all_;
    intrusive_list<reader> readers_;
};

void listed_connection::join(connection_list* list) noexcept
{
    leave();
    list_ = list;
    if (list != nullptr)
        list->all_.push_back(*this);
}

void listed_connection::leave() noexcept
{
    if (list_ == nullptr)
        return;
    for (auto* r = list_->readers_.front(); r != nullptr; r = list_->readers_.next(*r)) {
        if (r->at_ == this)
            r->at_ = list_->all_.next(*this);
    }
    list_ = nullptr;
    unlink();
}

} // namespace verbena

#pragma GCC visibility pop
