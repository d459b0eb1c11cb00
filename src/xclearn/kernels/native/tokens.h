// Texts, the vocabulary, and the TF-IDF weights of a text's tokens. Knows nothing about labels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace xclearn {

// ASCII as it came, or lower-cased code points of 1, 2 or 4 bytes.
struct Text {
    const void* data;
    int64_t length;  // code points
    int width;       // bytes of a code point; 0: ASCII, not yet lower-cased
};

using IsWord = bool (*)(uint32_t);  // whether a code point belongs to a word

// Token -> id: an open hash table over one block of UTF-8. A token with spaces is a run of words.
class Vocabulary {
  public:
    void add(const char* token, size_t size);  // ids count up from 0
    void build();
    int64_t size() const { return static_cast<int64_t>(offsets_.size()) - 1; }
    int64_t longest() const { return longest_; }  // code points of the longest token
    // The id of mark + word, given its hash; −1 when unknown.
    int32_t find(uint64_t hash, const std::string& mark, const char* word, size_t size) const;
    int64_t longest_run() const { return longest_run_; }  // words of the longest run
    // The id of a run, by those of the run without its last word and of that word; −1 when unknown.
    int32_t find_run(int32_t first, int32_t last) const;

  private:
    void build_runs();

    struct Slot {
        uint32_t tag;
        int32_t id;
    };
    struct Run {
        int32_t first, last, id;
    };
    std::string block_;
    std::vector<int64_t> offsets_{0};
    std::vector<Slot> slots_;
    std::vector<Run> runs_;  // another open hash table
    int64_t longest_ = 0, longest_run_ = 1;
};

// Text -> TF-IDF weights of its tokens.
struct Vectoriser {
    Vocabulary vocabulary;
    bool pieces = false;  // words that are not in the vocabulary fall into pieces that are
    const double* idf = nullptr;
    const double* damped = nullptr;  // weight of a count, looked up; null: the count itself
    int64_t n_damped = 0;
    bool normalise = false;
    bool prepared = false;  // texts that are not ASCII come as words with spaces between them
};

struct Bag {
    std::vector<int32_t> ids;  // ascending
    std::vector<float> weights;
};

Bag bag_of(const Vectoriser& vectoriser, const Text& text, IsWord is_word);

}  // namespace xclearn
