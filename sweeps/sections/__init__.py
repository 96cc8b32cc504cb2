"""What an answer is made of before it is printed: sections with sentences, tables and charts."""
