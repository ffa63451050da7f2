// SPDX-License-Identifier: Apache-2.0
// Settings: what a module can be told, declared by the module itself.
//
// A declaration gives name, type, default, range and help. Reading a file, the command line, `--check`, suggestions for a
// misspelt key and the reference page all follow from it. Nothing here knows TOML or a command line: whoever reads one fills
// setting_values, and check() does the rest.
//
// For set-up, on any one thread: nothing here is shared or fast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena {

/// Where a value stands in a file: "FILE:LINE:COLUMN: ", empty if it came from elsewhere. What is written the same in another
/// place is the same.
struct setting_place {
    std::string text;
    bool operator==(const setting_place&) const { return true; }
};

/// A setting that can't be used. what() names the setting, the rule it broke and the cure, and the place in a file.
class config_error : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
    /// With the place in front, if there is one.
    config_error(const setting_place& place, const std::string& what);
    /// Whether what() begins with a place.
    bool has_place() const noexcept { return has_place_; }

private:
    bool has_place_ = false;
};

/// Runs `f`; a config_error of it that has no place then has this one.
template<class F>
decltype(auto) at_place(const setting_place& place, F f)
{
    try {
        return f();
    } catch (const config_error& e) {
        if (e.has_place())
            throw;
        throw config_error(place, e.what());
    }
}

/// The numbers that a setting takes.
struct number_range {
    std::uint64_t low = 0;           ///< the least that it takes
    std::uint64_t high = UINT64_MAX; ///< the most
    /// Whether `value` is within the range.
    constexpr bool holds(std::uint64_t value) const noexcept { return value >= low && value <= high; }
    /// "a number from 1 to 256".
    std::string text() const;
};

/// What kind of value a setting has.
enum class setting_kind : std::uint8_t {
    flag,   ///< true or false
    number, ///< a whole number within a range
    text,
    word,   ///< one of a few
    list,   ///< of texts
    table,  ///< settings of its own
    tables, ///< a list of tables, written [[name]]
};

class setting_values;

/// One key, as its module declares it. The functions make one; what follows them adds to it.
class setting {
public:
    /// `help` is a sentence without a full stop that says what the setting does; of numbers it says the unit, if the name doesn't.
    static setting flag(std::string name, bool otherwise, std::string help);
    /// A whole number; `otherwise`, within `range`, is its default.
    static setting number(std::string name, number_range range, std::uint64_t otherwise, std::string help);
    /// Any text; `otherwise` is its default.
    static setting text(std::string name, std::string otherwise, std::string help);
    /// `otherwise` is one of `words`.
    static setting word(std::string name, std::vector<std::string> words, std::string otherwise,
                        std::string help);
    /// Empty unless it is written.
    static setting list(std::string name, std::string help);
    /// A table, written [name], of these settings. It is there with their defaults where nobody writes it.
    static setting table(std::string name, std::vector<setting> inner, std::string help);
    /// A list of tables, written [[name]], each of these settings. Empty unless it is written.
    static setting tables(std::string name, std::vector<setting> inner, std::string help);

    /// It has no value unless it is written: setting_values::written() tells. `told` says for people what happens then.
    setting&& optional(std::string told) &&;
    /// What a value looks like, for the help of the command line: "URL".
    setting&& form(std::string text) &&;
    /// The one setting of its table that people may give without its name, where a table is written in one word.
    setting&& main() &&;
    /// The tables of this list may hold other keys, which somebody else declares; check() leaves those as they are.
    setting&& open() &&;
    /// How one table of this list is written as one word of a command line. Throws config_error.
    using shorthand = setting_values (*)(std::string_view word);
    /// Lets the command line write a table of this list in one word.
    setting&& from_word(shorthand parse) &&;

    std::string name;                       ///< the key
    setting_kind kind = setting_kind::flag; ///< what kind of value it takes
    std::string help;                       ///< for people, without a full stop
    number_range range{};                   ///< of a number
    std::vector<std::string> words;         ///< of a word: the only ones
    std::vector<setting> inner;             ///< of a table, or of each of a list of tables
    std::string told;                 ///< of optional(); also of a default that is worked out: "one per CPU"
    std::string value_form;           ///< of form()
    std::uint64_t default_number = 0; ///< of a flag: 0 or 1
    std::string default_text;         ///< of a text or a word
    bool is_optional = false;         ///< of optional()
    bool is_main = false;             ///< of main()
    bool is_open = false;             ///< of open()
    shorthand parse_word = nullptr;   ///< of from_word()
};

/// The values of one table, as somebody wrote them; after check() with the defaults of what nobody wrote. A module reads what
/// it declared: asking for another name, or another type, is std::logic_error.
class setting_values {
public:
    /// A value that no setting has, such as a date: `found` says what stands there.
    struct other {
        std::string found; ///< what stands there, for the message
    };
    /// One word of a command line, to be read as whatever the setting takes.
    struct word {
        std::string text; ///< as it was typed
    };
    /// A value, and where somebody wrote it.
    struct value {
        /// Of a list.
        using texts = std::vector<std::string>;
        /// Of a table, which is one, or of a list of tables.
        using tables = std::vector<setting_values>;
        std::variant<bool, std::int64_t, std::string, texts, tables, word, other> data; ///< of whichever kind
        setting_place place = {};                       ///< where the value stands
        setting_place key_place = {};                   ///< where its key stands
        std::vector<setting_place> element_places = {}; ///< of a list, as far as they are known
        std::string option = {}; ///< as the command line has it: "--shards"; empty in a file
        bool is_table = false;   ///< of `tables`: written [name], not [[name]]
        bool is_default = false; ///< from check()
    };

    setting_values() = default;
    /// An empty table that begins at `place`.
    explicit setting_values(setting_place place) : place_(std::move(place)) {}

    /// Replaces what was there.
    void set(std::string name, value v);
    /// What this program says itself, by a path through tables that are made as needed: "daemon.shards". std::logic_error where
    /// something on the path is no table.
    void set_path(std::string_view path, value v);
    /// Adds to a list, or begins one.
    void append(const std::string& name, std::string text, setting_place place = {});
    /// Takes a key out; nothing if it is not there.
    void erase(const std::string& name) { values_.erase(name); }

    /// The value of a flag. std::logic_error for a name without a value or of another kind, as by the next
    /// five.
    bool flag(std::string_view name) const;
    /// The value of a number.
    std::uint64_t number(std::string_view name) const;
    /// Of a text or a word.
    const std::string& text(std::string_view name) const;
    /// The texts of a list, in the order of the file. The reference lives until the values change, as those
    /// below.
    const std::vector<std::string>& list(std::string_view name) const;
    /// The values of a table.
    const setting_values& table(std::string_view name) const;
    /// The tables of a list, in the order of the file.
    const std::vector<setting_values>& tables(std::string_view name) const;

    /// False for a default too.
    bool written(std::string_view name) const;
    /// Where the table begins.
    const setting_place& place() const noexcept { return place_; }
    /// Where a value stands, or the `i`-th of a list; empty for a default.
    setting_place place(std::string_view name) const;
    setting_place place(std::string_view name, std::size_t i) const;

    /// The value of a name, of whatever kind; nullptr if there is none. Lives until it is set anew or erased.
    const value* find(std::string_view name) const noexcept;
    value* find(std::string_view name) noexcept;
    /// All names with their values, sorted.
    const std::map<std::string, value, std::less<>>& all() const noexcept { return values_; }

private:
    friend void check(const std::vector<setting>& declared, setting_values& values, const std::string& path,
                      bool open);
    template<class T>
    const T& get(std::string_view name, const char* kind) const;

    std::map<std::string, value, std::less<>> values_;
    setting_place place_;
};

/// Whether a setting of such a name may be a secret, or a table of secrets: it has one of the words password, passwd, passphrase,
/// secret, token, key, keytab, credential, psk and auth, or of their plurals. `_`, `-` and `.` part words. Its value is shown to nobody:
/// not by a log, a message, or the control plane.
bool is_secret(std::string_view name) noexcept;
/// What stands in place of such a value.
inline constexpr std::string_view not_shown = "(not shown)";
/// A word of a command line for messages, as "vm1=/srv/disk,key=(not shown)": options between commas, a backslash before what is no end.
std::string without_secrets(std::string_view word);

/// Compares `values` with what is declared: refuses names that nobody declared, other types and numbers out of range, with the
/// place and the name that was meant; then fills in defaults. `path` stands before names in messages: "nfs." `open`: leaves
/// names alone that are not declared. Throws config_error.
void check(const std::vector<setting>& declared, setting_values& values, const std::string& path = {},
           bool open = false);

/// Refuses names in `values` that none of `declared` has, as check() does.
void refuse_unknown(const std::vector<std::string_view>& declared, const setting_values& values,
                    const std::string& path);

} // namespace verbena

#pragma GCC visibility pop
