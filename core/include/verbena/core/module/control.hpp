// SPDX-License-Identifier: Apache-2.0
// Commands of the control plane: what an operator asks a running program by `verbena admin`, and how a part of the program
// answers.
//
// A command answers with rows of a table. What it knows by itself it says on the thread of the control plane (`answer`); what lies on
// shards it lists there, a few entries at a time (`list`). So a command with 10,000 entries holds no shard for long, and a
// shard that hangs keeps no command from its answer. What has to wait for a disk or for shards has a thread of its own meanwhile
// (`work`). docs/internals/control.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena {

class shard;

/// One value of a row; std::monostate: there is none. Text may be any octets, of peers too: who shows it makes it printable.
using control_value = std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string,
                                   std::vector<std::string>>;
/// In the order of control_command::columns.
using control_row = std::vector<control_value>;

/// What a command can be told.
struct control_argument {
    std::string name;                    ///< in a request; people say arguments in this order
    std::string help;                    ///< a sentence without a full stop
    bool required = false;               ///< the command is refused without it
    std::vector<std::string> words = {}; ///< the only values that it may have; none: any text
};

/// What it was told: only what control_command::arguments declares, and all that is required.
class control_arguments {
public:
    /// Says what argument `name` is. For whoever asks; a command reads by find().
    void set(std::string name, std::string value) { said_.emplace_back(std::move(name), std::move(value)); }
    /// nullptr if it was not told that. Lives as long as this object.
    const std::string* find(std::string_view name) const noexcept
    {
        for (const auto& [known, value] : said_) {
            if (known == name)
                return &value;
        }
        return nullptr;
    }

private:
    std::vector<std::pair<std::string, std::string>> said_;
};

/// What a command says by itself.
struct control_answer {
    std::vector<control_row> rows; ///< each as long as control_command::columns
    /// Called on the thread of the control plane when the whole answer has gone to whoever asked, or that peer is gone. For what
    /// ends the program.
    std::function<void()> afterwards = {};
};

/// The entries of one shard. Made, used and destroyed on that shard, between polls.
class control_list {
public:
    virtual ~control_list() = default;
    /// Adds at most `most` rows; false if there are no more. Never waits. Other things happen on the shard between two calls: what is
    /// listed may go meanwhile. What it throws ends the list of this shard, and the answer names the shard.
    virtual bool next(std::vector<control_row>& rows, std::size_t most) = 0;
};

/// One command of `verbena admin`, or of another program at the control socket: what it is called and told, and
/// what answers it.
struct control_command {
    std::string name;                             ///< lower-case letters, digits and '-', at most 32
    std::string help;                             ///< a sentence without a full stop
    std::vector<std::string> columns;             ///< names as in JSON: lower-case letters, digits and '_'
    std::vector<control_argument> arguments = {}; ///< what it may be told
    bool single = false;                          ///< it has one row, which people are shown line by line
    std::string largest_first =
        {}; ///< a column of numbers by which people are shown the rows sorted; none: as they come
    /// Called once for each request, on the thread of the control plane, which it must not hold up: it never waits for a shard or a
    /// disk. What it throws fails the command with its message, which names the thing, the rule and the cure. Either of the
    /// two may be empty, and both are if there is `work`.
    std::function<control_answer(const control_arguments&)> answer = {};
    /// Called on each shard, side by side. nullptr: nothing is there. Throws as control_list::next() does. Must stay callable until
    /// the service stops; no list is left then.
    std::function<std::unique_ptr<control_list>(shard&, const control_arguments&)> list = {};
    /// Called once for each request, on a thread of its own that blocks all signals: it may wait for disks and shards. At most
    /// one of each command is under way, and 8 of all; more are refused. It goes on when whoever asked is gone. The stop of
    /// the service waits for it, before modules are taken down, and asks the token: it returns soon then. What it throws fails the
    /// command with its message, as in `answer`; its control_answer::afterwards is called only if whoever asked is still there.
    std::function<control_answer(const control_arguments&, std::stop_token)> work = {};
};

/// A module that has commands implements this too.
class controlled {
public:
    /// Called once, after start() of all modules. The commands are used until the module's closing() or stop().
    virtual std::vector<control_command> control_commands() = 0;

protected:
    ~controlled() = default;
};

} // namespace verbena

#pragma GCC visibility pop
